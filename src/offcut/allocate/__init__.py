"""How many nodes each job should have: a pure function from a problem to an allocation.

- `solve`: chooses the solver or the policy that answers
- `json_format`: the JSON formats of problem and answer
- `objective`: the value of a size to a job; every solver is tested against this definition
- `exact`: the exact solver over node counts
- `milp`: a mixed-integer program (HiGHS) for problems that node counts alone cannot express; `milp_model`, `milp_job`
  and `node_classes` build it
- `placement`: which nodes each job gets, given the counts
- `explain`: why a job has its size
- `standin`: a quick allocation for when the solver gives no answer
- `policy`, `baselines`: other rules to decide by, for comparison
"""
