"""How many nodes should each job have? Problem in, allocation out; pure.

- `json_format`: the JSON formats of problem and answer
- `value`: what a size is worth to a job; the definition that everything else here is checked against
- `solve`: which solver, or which policy, answers
- `exact`: the exact solver over counts
- `milp`: what counts alone cannot express, by HiGHS; `milp_model`, `milp_job`, `node_classes`: its parts
- `place`: counts to nodes
- `explain`: why a job has its size
- `standin`: a quick answer for when no solver gives one
- `policy`, `baselines`: other ways to decide, to compare with
"""
