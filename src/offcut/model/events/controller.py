"""Events about the controller itself: its start and end, its timers, the answers of its solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from offcut.model.allocation import Allocation


@dataclass(frozen=True, slots=True)
class JobGeneration:
    """The newest generation of a job."""

    job: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStarted:
    """The controller started. The journal may be older: these numbers have been given, as is known from elsewhere."""

    time_s: float
    incarnation: int = 0
    generations: tuple[JobGeneration, ...] = ()
    kind: Literal["controller_started"] = "controller_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseChecked:
    """The lease on the shared directory could be renewed in time, or it could not: then another controller may have it.

    `certain`: it is this controller's.
    """

    time_s: float
    certain: bool
    kind: Literal["lease_checked"] = "lease_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStopping:
    """The controller was told to end: every node is released, and nothing is claimed until one starts again."""

    time_s: float
    kind: Literal["controller_stopping"] = "controller_stopping"


#: What happens when a timer fires. The subject is a node:
#: `boot`: its agent has not answered in time; `ready`: its worker has not reported ready in time; `retry`: its worker
#: is started again; `hold`: no job has wanted it, so that it is released; `leaving`: the queue has not wanted it after
#: all; `set_aside`: it may be claimed again.
#: The subject is a job:
#: `join`, `relaunch`: it waits no longer for workers that are starting, or after a failure; `renew`: its generation
#: broke and is set again; `depart`: the last holders of its state had their time to save it; `probe`: a size could not
#: be measured in time; `finish`: its script has not come to its end in time.
#: No subject: `solve_again`: the solver is asked again.
Purpose = Literal[
    "boot",
    "ready",
    "retry",
    "hold",
    "leaving",
    "set_aside",
    "join",
    "relaunch",
    "renew",
    "depart",
    "probe",
    "finish",
    "solve_again",
]


@dataclass(frozen=True, slots=True)
class Timer:
    """Names one timer. `subject` is a node or a job; `incarnation` that of the node's worker, where it is about one."""

    purpose: Purpose
    subject: str = ""
    incarnation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """A timer is due."""

    time_s: float
    timer: Timer
    kind: Literal["timer_fired"] = "timer_fired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """The solver's answer to version `version` of the allocation problem.

    `late`: a newer version has been asked meanwhile; the answer is carried out if it is still allowed.
    """

    time_s: float
    version: int
    allocation: Allocation
    late: bool = False
    kind: Literal["solved"] = "solved"


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveFailed:
    """The solver found no answer to version `version` of the allocation problem, for this reason."""

    time_s: float
    version: int
    reason: str
    kind: Literal["solve_failed"] = "solve_failed"
