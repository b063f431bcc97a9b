"""What a trial scheduler decides, and on what it decides.

A scheduler is a pure function of what it is shown: the same trials with the same results give the same decisions. It
keeps nothing between calls, and draws random numbers from `offcut.search.random_numbers`. The journal relies on that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from offcut.model.search_space import ParameterValues
from offcut.model.sweep import Sweep
from offcut.search.trials import Trial


@dataclass(frozen=True, slots=True)
class Continue:
    """The trial runs on to its next rung."""


@dataclass(frozen=True, slots=True)
class Halt:
    """The trial is paused and keeps its state; it may be resumed later."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The trial ends for good."""

    reason: str


@dataclass(frozen=True, slots=True)
class Exploit:
    """The trial continues from the newest state of trial `source`, with these parameters."""

    source: int
    parameters: ParameterValues


Decision = Continue | Halt | Stop | Exploit


@dataclass(frozen=True, slots=True)
class StartNew:
    """Start a new trial. Without `parameters` they are suggested."""

    bracket: int = 0
    parameters: ParameterValues | None = None
    #: The trial from which the parameters were made.
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume a halted trial, up to its next rung."""

    number: int


@dataclass(frozen=True, slots=True)
class SearchView:
    """What a scheduler is shown. It must not change any of it."""

    sweep: Sweep
    #: By number, in the order in which they were asked for.
    trials: Mapping[int, Trial]
    #: The trials that used their whole budget, in the order in which they did.
    completed: Sequence[int]

    @property
    def next_number(self) -> int:
        """The number of the next new trial."""
        return len(self.trials)


class TrialScheduler(Protocol):
    """Decides which trials run on, halt or stop, and which one comes next."""

    @property
    def max_budget(self) -> float:
        """The cumulative budget of a trial that is completed."""
        ...

    @property
    def waits_at_rungs(self) -> bool:
        """Whether a trial pauses at a rung until it is decided upon. Otherwise it runs on meanwhile."""
        ...

    def next_rung(self, trial: Trial, budget: float) -> float:
        """Return the next rung of the trial.

        Args:
            trial: the trial.
            budget: its cumulative budget so far.

        Returns:
            The cumulative budget at which its next result is wanted: greater than `budget`, `max_budget` at most.
        """
        ...

    def decide(self, view: SearchView, trial: Trial) -> Decision:
        """Decide what becomes of a trial that has a new result, the last of its `results`.

        Args:
            view: the search.
            trial: the trial; its budget is below `max_budget`.
        """
        ...

    def next_trial(self, view: SearchView) -> StartNew | Resume | None:
        """Decide which trial runs next, because one more may.

        Args:
            view: the search.

        Returns:
            None: no trial until another result is there. A new trial is not started if the sweep has all its trials.
        """
        ...
