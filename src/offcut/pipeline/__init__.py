"""The pipeline planner: from a model's layer profile and a cluster to the best plan for every size. Pure.

- `layer_profile`: a model as a chain of layers with times and bytes; `profile_file`, `pipedream_graph`: read from files
- `hardware`: devices and links
- `schedules`: one file per schedule; each lays out a `program` of operations per rank
- `stage_costs`, `simulator`, `simulator_kernels`: how long a program takes on uneven stages and links
- `planner`: exact splits, lower bounds, and the exploration of all plans for one size
- `plan`, `plan_set`: what the planner finds, and what the torch runtime runs
- `frontier`: the trade of time against memory over all strategies of all layers
- `tensor_parallel`: what matrix products divided over ranks send, in one, two and three dimensions
- `layer_moves`: which layers move between ranks when a pipeline job changes size
- `peers`: other planners and the closed formulae of the literature; for tests and benchmarks only
"""
