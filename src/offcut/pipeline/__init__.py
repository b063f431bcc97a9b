"""The pipeline planner: from a model's layer profile and a cluster to the best plan for every size. Pure.

- `profile`, `pipedream`: a model as a chain of layers with times and bytes; `hardware`: devices and links
- `schedules`: one file per schedule, each a `program` of operations per rank
- `costs`, `kernels`, `simulator`: what a program takes on uneven stages and links; `closed_forms`: its proof
- `partition`: exact splits of a chain; `bound`: how fast any plan could be; `placing`: layers on devices to stage costs
- `problem`, `candidates`, `explore`, `runners_up`: the exploration of one size
- `plan`: what it finds; `curve`: the plans of all sizes as a scaling curve
- `bapipe`, `baselines`: what others would have chosen
"""
