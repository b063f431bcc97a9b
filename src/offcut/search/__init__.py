"""Searches over the parameters of training jobs: `step(state, event)` answers any event with effects. Pure.

- `step`: answers an event; `events`: the events and effects; `state`: the state of a search
- `trials`: trials, their results and phases; `rungs`: the budgets at which they are compared
- `result_order`: which results take part in decisions next; `decisions`: what follows from them
- `schedulers`: which trials run on, halt or stop, and which one comes next
- `user_scheduler`: decisions of a scheduler in a user's file, made in a process of its own
- `suggestion`: the parameters of a trial, at random, from a grid, or by changing another trial's
- `random_numbers`: random numbers that follow from a sweep's seed
"""

from offcut.search.state import SearchState
from offcut.search.step import begin, reissue, step

__all__ = ["SearchState", "begin", "reissue", "step"]
