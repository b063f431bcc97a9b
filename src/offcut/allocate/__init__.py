"""How many nodes should each job have? Problem in, allocation out; pure.

- `problem`: the JSON formats of problem and answer
- `value`: what a size is worth to a job; the definition that everything else here is checked against
- `pieces`, `kernels`, `exact`: the exact solver over counts
- `quotas`: the same with group quotas
- `objectives`: max-min and priority classes, made of several exact solutions
- `milp`: what counts alone cannot express, by HiGHS
- `place`: counts to nodes
- `explain`: why a job has its size
- `policy`, `baselines`: other ways to decide, to compare with
"""
