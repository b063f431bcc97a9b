"""The exact solver: node counts to proven optimality, usually in well under a millisecond.

In the order of docs/allocation.md:

- `pieces`: step 1, each job's value as a function of its size, cut into runs of sizes on which it is linear
- `relaxation`: step 2, the price of a node, the bound that it proves, and the regret of every size
- `search`: step 3, an allocation without regret, or else a dynamic program over the sizes of small regret; `tables`:
  the sizes that remain, and the rows of the dynamic program
- `search_in_blocks`: step 3 where its tables are too large to be made at once
- `counts`: steps 2 and 3 together
- `quotas`, `max_min`, `priority`: problems that are made of several such questions
- `solver`: the entry
"""

from offcut.allocate.exact.solver import solve, warm

__all__ = ["solve", "warm"]
