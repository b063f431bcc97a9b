"""The trials of a sweep: their parameters, what they have reported, and in which phase they are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from offcut.model.search_space import ParameterValues

#: `asked`: the trial has its number, and waits for its parameters. `ready`: it has parameters and is not started until
#: the first trial of the sweep has reported. `running`: it has been started, or resumed; its job may wait for nodes.
#: `halted`: it is paused and keeps its state. The others are final: `completed` (it used its whole budget, or its
#: script ended), `stopped` (by the scheduler or the user), `failed`.
TrialPhase = Literal["asked", "ready", "running", "halted", "completed", "stopped", "failed"]
ACTIVE: frozenset[TrialPhase] = frozenset({"asked", "ready", "running"})
FINAL: frozenset[TrialPhase] = frozenset({"completed", "stopped", "failed"})


@dataclass(frozen=True, slots=True)
class Result:
    """The objective's value at a cumulative budget."""

    budget: float
    value: float


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """How the script of a trial ended by itself."""

    failed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CopiedState:
    """The trial continued from the state of another one, as population-based training does."""

    #: The budget of this trial at which it took over the other's state.
    budget: float
    source: int
    #: The budget at which the other's state was.
    source_budget: float


@dataclass(slots=True)
class Trial:
    """One trial. What schedulers may read is what has been decided upon: `reports` may be ahead of `results`."""

    number: int
    phase: TrialPhase = "asked"
    #: None until they are suggested.
    parameters: ParameterValues | None = None
    #: The results that decisions were made upon, in order: one per rung.
    results: list[Result] = field(default_factory=list)
    #: The cumulative budget at which its next result is wanted; halted: that of the rung at which it was halted.
    rung_budget: float = 0.0
    #: The first of this trial's brackets, for schedulers that have several.
    bracket: int = 0
    #: The number of the trial whose parameters were mutated to get this one's; None: of no trial.
    parent: int | None = None
    copies: list[CopiedState] = field(default_factory=list)
    #: Order `logical`: the logical time at which it had `clock_budget`.
    clock: float = 0.0
    clock_budget: float = 0.0
    #: How often its script was given another state: reports of scripts before that do not count.
    leg: int = 0
    #: Its newest report, and the best one.
    last_report: Result | None = None
    best_report: Result | None = None
    #: Its reports at the next rung or later. They may be ahead of the decisions.
    reports: list[Result] = field(default_factory=list)
    #: How its script ended, where it did by itself. Takes part in decisions when its turn comes.
    end: TrialEnd | None = None
    #: Why it is in a final phase.
    reason: str = ""

    @property
    def budget(self) -> float:
        """The budget of its newest result; 0 before the first."""
        return self.results[-1].budget if self.results else 0.0

    @property
    def value(self) -> float | None:
        """The value of its newest result; None before the first."""
        return self.results[-1].value if self.results else None

    def value_at(self, budget: float) -> float | None:
        """Return the value of its result at this rung; None if it has none there."""
        for result in self.results:
            if result.budget == budget:
                return result.value
        return None

    def wanted_result(self) -> Result | None:
        """Return the result at its next rung: the value of the first report there or later; None if there is none yet.

        A script that ended before the rung has its last report as its result there.
        """
        if self.reports:
            return Result(self.rung_budget, self.reports[0].value)
        if self.end is not None and not self.end.failed and self.last_report is not None:
            return Result(self.rung_budget, self.last_report.value)
        return None

    def set_rung(self, budget: float) -> None:
        """Let its next result be wanted at this cumulative budget."""
        self.rung_budget = budget
        self.reports = [report for report in self.reports if report.budget >= budget]

    def note_report(self, report: Result, direction: str) -> bool:
        """Note what its script reported. Return False if that is known already: the same work was done again.

        Args:
            report: what it reported.
            direction: `minimize` or `maximize`.
        """
        if self.last_report is not None and report.budget <= self.last_report.budget:
            return False
        self.last_report = report
        if self.best_report is None or loss(report.value, direction) < loss(self.best_report.value, direction):
            self.best_report = report
        if report.budget >= self.rung_budget:
            self.reports.append(report)
        return True


def loss(value: float | None, direction: str) -> float:
    """Return the value as a number that is better the smaller it is. NaN and a missing value are worst.

    Args:
        value: the objective's value.
        direction: `minimize` or `maximize`.
    """
    if value is None or math.isnan(value):
        return math.inf
    return value if direction == "minimize" else -value


def best(trials: dict[int, Trial], direction: str) -> tuple[Trial, Result] | None:
    """Return the trial with the best report and that report; of equal ones the earliest trial and budget.

    Args:
        trials: the sweep's trials.
        direction: `minimize` or `maximize`.
    """
    found: tuple[Trial, Result] | None = None
    for number in sorted(trials):
        report = trials[number].best_report
        if report is None or not math.isfinite(report.value):
            continue
        if found is None or loss(report.value, direction) < loss(found[1].value, direction):
            found = trials[number], report
    return found
