"""The brain: `step(state, event)` answers any event in any state with effects. Pure: no clock, no I/O, no randomness.

- `state`: the state of the controller
- `step`: which handler answers which event; `event_context`: what the handlers of one event share
- `nodes`, `workers`, `jobs`, `timers`: the handlers
- `lifecycle`: the controller starts and stops
- `stale_journal`: generations and incarnations are never given twice, even if the journal was restored from a copy
- `report_checks`: which reports of agents are believed
- `network_blips`: when many agents are silent at once, the network is at fault and not each node
- `ended_jobs`: which jobs leave the state for the history, and which are forgotten
- `sweeps`: the trials of sweeps are jobs, and what is tried next follows from `offcut.search`; `sweep_state`: what is
  known of a sweep; `trial_jobs`: the job of a trial; `trial_copies`: a trial goes on from the state of another one
- `failures`, `node_health`: decide which failures count against a job, and which against a node
- `unreachable_members`: members to which others cannot connect leave the generation
- `membership`: from assigned nodes to generations; `relaunch`: the same for jobs of mode `restart`
- `job_curves`: which curve and which costs count for a job
- `curve_learning`: what is learned of them from measurements; `probes`: jobs that try a size
- `admission`: which jobs take part in the allocation
- `check_state`: checks that a state agrees with itself; `phases`: which phase may follow which
- `allocation`: from the state to an allocation problem, and from its answer to nodes
"""

from offcut.control.jobs import nears_end
from offcut.control.state import JobState, NodeState, Settings, State
from offcut.control.step import skip, step

__all__ = ["JobState", "NodeState", "Settings", "State", "nears_end", "skip", "step"]
