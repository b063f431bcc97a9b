"""The malleable training job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from offcut.model.curve import ScalingCurve
from offcut.model.sizes import Sizes

#: `session`: the script uses offcut.torch and resizes in process. `restart`: any script that can resume from its own
#: checkpoint; a resize ends it and launches it again.
JobMode = Literal["session", "restart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A malleable training job: a command, the sizes it may have, a goal."""

    id: str
    name: str
    #: The program and its arguments; if the first element ends in `.py`, the agent's own Python runs it.
    command: tuple[str, ...]
    sizes: Sizes
    ranks_per_node: int = 1
    workdir: str = "."
    #: Added to the environment of every worker.
    env: tuple[tuple[str, str], ...] = ()
    #: Shell lines run before the command: modules, a container, an activation script.
    setup: str = ""
    weight: float = 1.0
    #: Jobs of a higher priority are served first; within one priority the allocation decides.
    priority: int = 0
    #: None: not known; the controller estimates it while the job trains.
    curve: ScalingCurve | None = None
    #: Jobs of one family (the trials of a sweep, say) share the measurements of their scaling.
    family: str | None = None
    mode: JobMode = "session"
    #: Samples after which the job is done; None: the script's own end.
    goal_samples: int | None = None
    #: The job fails after more than this number of failures in a row without a new stable step between them.
    max_failures: int = 3
    #: Seconds of progress that one resize costs; None: the controller's default.
    grow_cost_s: float | None = None
    shrink_cost_s: float | None = None
    #: At most this much work is redone when the last member dies without warning.
    checkpoint_age_s: float = 30.0
    #: A script that does not call its session for this long is considered hung: it is ended, and that is a failure.
    hang_limit_s: float = 1800.0
    #: Seconds from its last step (`restart`: from the first rank's end) to the end of its script; None: `hang_limit_s`.
    finish_limit_s: float | None = None
    #: Mode `restart` only: seconds between SIGTERM and SIGKILL when it is launched again. A wanted node does not wait
    #: for it.
    restart_grace_s: float = 10.0
    #: Write a record of every step and its samples beside the log: proof that each sample counted once.
    step_records: bool = False

    def __hash__(self) -> int:
        """Hash the id alone, because a job is looked up far more often than two jobs of one id are compared."""
        return hash(self.id)
