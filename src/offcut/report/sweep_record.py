"""What a report shows of a sweep: gathered from the controller's states and events, of a journal or of a replay."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from offcut.control import State
from offcut.control.sweep_state import SweepState, sweep_id_of, trial_of
from offcut.model.events import Event, NodesChanged, ObjectivesRead
from offcut.model.search_space import ParameterValues
from offcut.model.sweep import Sweep
from offcut.search.trials import Result, TrialPhase, loss

#: A trial that has reported more often than this is shown with every second of its reports, and so on.
MOST_REPORTS = 200


@dataclass(frozen=True, slots=True)
class TrialSpan:
    """A stretch of time in which a trial had a node; `trains`: as a member of its generation, not booting."""

    node: str
    trial: int
    start_s: float
    end_s: float
    trains: bool


@dataclass(frozen=True, slots=True)
class TrialReclaim:
    """The queue wanted a node that a trial had, or the node was lost."""

    time_s: float
    node: str
    trial: int


@dataclass(frozen=True, slots=True)
class BestSoFar:
    """From `node_h` node-hours of the sweep on, the best value was this one."""

    node_h: float
    value: float
    trial: int


@dataclass(slots=True)
class TrialRecord:
    """A trial: what it reported, what it cost and how it ended."""

    number: int
    phase: TrialPhase = "asked"
    parameters: ParameterValues = field(default_factory=dict)
    #: Its reports in order; every second, fourth ... of them where they are many.
    reports: list[Result] = field(default_factory=list)
    last: Result | None = None
    best: Result | None = None
    #: The results that decisions were made upon, one per rung.
    rungs: list[Result] = field(default_factory=list)
    nan_reports: int = 0
    node_s: float = 0.0
    reclaims: int = 0
    parent: int | None = None
    #: Why it is in a final phase.
    reason: str = ""
    #: How often it continued from another trial's state, until the last report.
    leg: int = 0
    #: One of this many reports is in `reports`; how many there were.
    _stride: int = 1
    _seen: int = 0

    def note(self, report: Result, direction: str, leg: int = 0) -> None:
        """Add what it reported.

        Args:
            report: the value at a budget.
            direction: `minimize` or `maximize`.
            leg: how often the trial has continued from another trial's state.
        """
        if leg == self.leg and self.last is not None and report.budget <= self.last.budget:
            return  # the same work was done again
        self.last, self.leg = report, leg
        if math.isnan(report.value):
            self.nan_reports += 1
        elif self.best is None or loss(report.value, direction) < loss(self.best.value, direction):
            self.best = report
        if self._seen % self._stride == 0:
            self.reports.append(report)
        self._seen += 1
        if len(self.reports) > MOST_REPORTS:
            del self.reports[1::2]
            self._stride *= 2


@dataclass(slots=True)
class SweepRecord:
    """A sweep as a report shows it. Times are seconds of the controller's clock."""

    sweep: Sweep
    phase: str
    reason: str
    start_s: float
    end_s: float
    #: Whether the journal's first events are gone: times and node-hours before them are missing.
    partial: bool
    trials: dict[int, TrialRecord]
    spans: list[TrialSpan]
    reclaims: list[TrialReclaim]
    best: list[BestSoFar]

    @property
    def node_h(self) -> float:
        """The node-hours that its trials had, those in which they booted included."""
        return sum(trial.node_s for trial in self.trials.values()) / 3600


class SweepRecorder:
    """Gathers the record of one sweep from the controller's events and the states after them.

    Args:
        sweep_id: the sweep's id.
    """

    def __init__(self, sweep_id: str) -> None:
        self._id = sweep_id
        self._record: SweepRecord | None = None
        #: The sweep as it was last: it may have been forgotten since.
        self._sweep: SweepState | None = None
        self._now_s = 0.0
        #: By node: the trial that has it, whether it trains, since when.
        self._held: dict[str, tuple[int, bool, float]] = {}

    def observe(self, state: State, event: Event) -> None:
        """Note what an event has changed.

        Args:
            state: the state after the event.
            event: the event.
        """
        sweep = state.sweeps.get(self._id)
        if sweep is not None:
            record = self._record or self._begin(sweep, event)
            record.phase, record.reason, record.sweep = sweep.search.phase, sweep.search.reason, sweep.search.sweep
        elif self._record is None:
            return
        else:
            record = self._record
        now_s = state.now_s
        for trial, _, _ in self._held.values():
            self._trial(record, trial).node_s += now_s - self._now_s
        self._now_s = now_s
        self._note_nodes(record, {} if sweep is None else _nodes_of(state, sweep), state, event)
        if sweep is not None:
            if isinstance(event, ObjectivesRead) and sweep_id_of(event.job) == self._id:
                self._note_reports(record, event)
            self._sweep = sweep
            if sweep.ended_s is None or self._held:
                record.end_s = now_s

    def record(self) -> SweepRecord | None:
        """Return what was gathered; None if the sweep did not occur."""
        record = self._record
        if record is None or self._sweep is None:
            return None
        for node in list(self._held):
            self._close(record, node)
        for number, trial in self._sweep.search.trials.items():
            shown = self._trial(record, number)
            shown.phase, shown.parameters, shown.parent = trial.phase, dict(trial.parameters or {}), trial.parent
            shown.rungs = list(trial.results)
            shown.reason = trial.reason or (trial.end.reason if trial.end is not None else "")
        record.trials = dict(sorted(record.trials.items()))
        return record

    def _begin(self, sweep: SweepState, event: Event) -> SweepRecord:
        trials = sweep.search.trials
        known = any(trial.last_report is not None for trial in trials.values())
        record = SweepRecord(
            sweep=sweep.search.sweep,
            phase=sweep.search.phase,
            reason=sweep.search.reason,
            start_s=sweep.submitted_s,
            end_s=event.time_s,
            partial=known or event.time_s > sweep.submitted_s,
            trials={},
            spans=[],
            reclaims=[],
            best=[],
        )
        self._record, self._now_s = record, event.time_s
        for number, trial in trials.items():
            shown = self._trial(record, number)
            shown.last, shown.best = trial.last_report, trial.best_report
            shown.reports = [] if trial.last_report is None else [trial.last_report]
            if trial.best_report is not None:
                self._improve(record, trial.best_report.value, number)
        return record

    def _trial(self, record: SweepRecord, number: int) -> TrialRecord:
        return record.trials.setdefault(number, TrialRecord(number))

    def _note_reports(self, record: SweepRecord, event: ObjectivesRead) -> None:
        number = trial_of(event.job)
        if number is None:
            return
        # A trial that continues from another one's state has a job of its own: SWEEP.NUMBER-LEG.
        leg = event.job.rpartition(".")[2].partition("-")[2]
        trial = self._trial(record, number)
        for report in event.reports:
            trial.note(Result(report.budget, report.value), record.sweep.direction, int(leg or 0))
            if math.isfinite(report.value):
                self._improve(record, report.value, trial.number)

    def _improve(self, record: SweepRecord, value: float, trial: int) -> None:
        direction = record.sweep.direction
        if not record.best or loss(value, direction) < loss(record.best[-1].value, direction):
            record.best.append(BestSoFar(record.node_h, value, trial))

    def _note_nodes(self, record: SweepRecord, now: dict[str, tuple[int, bool]], state: State, event: Event) -> None:
        gone = {*event.wanted, *event.lost} if isinstance(event, NodesChanged) else set()
        for node in list(self._held):
            trial, trains, _ = self._held[node]
            if now.get(node) == (trial, trains):
                continue
            known = state.nodes.get(node)
            if node not in now and (node in gone or (known is not None and known.phase == "leaving")):
                record.reclaims.append(TrialReclaim(self._now_s, node, trial))
                self._trial(record, trial).reclaims += 1
            self._close(record, node)
        for node, (trial, trains) in now.items():
            self._held.setdefault(node, (trial, trains, self._now_s))

    def _close(self, record: SweepRecord, node: str) -> None:
        trial, trains, since_s = self._held.pop(node)
        if self._now_s > since_s:
            record.spans.append(TrialSpan(node, trial, since_s, self._now_s, trains))


def _nodes_of(state: State, sweep: SweepState) -> dict[str, tuple[int, bool]]:
    """Return the nodes that the sweep's trials have: the trial, and whether it trains there."""
    found = {}
    for job_id, trial_job in sweep.trial_jobs.items():
        job = state.jobs.get(job_id)
        for node in job.nodes if job is not None else ():
            found[node] = trial_job.trial, state.nodes[node].worker == "member"
    return found
