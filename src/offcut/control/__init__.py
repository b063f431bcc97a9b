"""The brain: `step(state, event)` answers any event in any state with effects. Pure: no clock, no I/O, no randomness.

- `state`: what the controller knows
- `turn`: one event being answered: the effects so far
- `step`: which handler answers which event
- `nodes`, `workers`, `jobs`: the handlers
- `life`: the controller begins and ends; `numbers`: what is never given twice, whatever became of the journal
- `failures`, `suspects`: what is held against a job, and what against a node
- `resize`: from assigned nodes to generations
- `relaunch`: the same for scripts that are ended and launched anew
- `profiling`: what is learnt of jobs' scaling, and which size to try next; `learnt`: the same, told
- `decide`: from the state to an allocation problem, and from its answer to nodes
"""

from offcut.control.state import JobState, NodeState, Settings, State
from offcut.control.step import skip, step

__all__ = ["JobState", "NodeState", "Settings", "State", "skip", "step"]
