"""What a replay's event loop has scheduled: one class for each kind of thing that is due at a later time."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.model import events as ev
from offcut.model.events import Member, Timer
from offcut.simulate.training import Training


@dataclass(frozen=True, slots=True)
class Formed:
    """The generation that was set at `set_s` forms, if the training has not changed since."""

    training: Training
    changes: int
    generation: int
    set_s: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The throughput of a generation is known, if the training has not changed since."""

    training: Training
    changes: int
    event: ev.JobMeasured


@dataclass(frozen=True, slots=True)
class Ended:
    """The training reaches its goal, if neither has changed since."""

    training: Training
    changes: int
    goals: int


@dataclass(frozen=True, slots=True)
class NearsEnd:
    """The training reaches its goal in `left_s`, if it has not changed since."""

    training: Training
    changes: int
    left_s: float


@dataclass(frozen=True, slots=True)
class Booted:
    """The nodes of claim `claim` have booted, those that were not wanted meanwhile."""

    claim: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """Workers are ready."""

    job: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class TimerDue:
    """A timer of the controller is due, if it has not been cancelled or set again."""

    timer: Timer


Due = Formed | Measured | Ended | NearsEnd | Booted | Ready | TimerDue

#: In which order things happen that are due at the same time.
ORDER: dict[type[Due], int] = {
    kind: place for place, kind in enumerate((Formed, Measured, Ended, NearsEnd, Booted, Ready, TimerDue))
}
