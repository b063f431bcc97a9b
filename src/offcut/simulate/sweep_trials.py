"""The trials of a sweep in a replay: they report what a table of learning curves says, after the work that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from offcut.control import State
from offcut.control.state import ENDED
from offcut.control.sweep_state import SweepState
from offcut.errors import InputError
from offcut.model import ScalingCurve
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.search_space import ParameterValues
from offcut.model.sweep import Sweep
from offcut.search.schedulers.load import load
from offcut.simulate.options import ReplayOptions
from offcut.simulate.training import Training
from offcut.traces.job_list import ListedJob
from offcut.traces.learning_curves import LearningCurve, LearningCurves

#: Returns the parameters of a trial that waits for a suggestion, as the searcher process does live.
Suggest = Callable[[SweepState, int], ParameterValues]


@dataclass(frozen=True, slots=True)
class TrialReport:
    """A report of a trial. `node_s`: node-seconds that the sweep's trials had held by then."""

    time_s: float
    node_s: float
    trial: int
    budget: float
    value: float


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the sweep's log: a new trial, or what was decided about one."""

    time_s: float
    node_s: float
    text: str


class SweepTrials:
    """The trials of one sweep, each with its learning curve and the next budget at which it reports.

    Args:
        sweep: the sweep as it is submitted.
        curves: the table of learning curves.
        options: what the replay assumes.
        suggest: answers for the suggester `optuna`.
    """

    def __init__(
        self, sweep: Sweep, curves: LearningCurves, options: ReplayOptions, suggest: Suggest | None = None
    ) -> None:
        check_table(sweep, curves)
        if sweep.suggester == "optuna" and suggest is None:
            raise InputError("replay: the suggester optuna is not there.", next_step="Use suggest = 'random'.")
        self.sweep = replayed_sweep(sweep, options)
        self.reports: list[TrialReport] = []
        self.log: list[LogLine] = []
        #: Whether the search is over.
        self.ended = False
        self._curves = curves
        self._options = options
        self._suggest = suggest
        self._max_budget = load(sweep.scheduler).max_budget
        #: By job.
        self._curve_of: dict[str, LearningCurve] = {}
        self._trial_of: dict[str, int] = {}
        #: By job: the index of the budget at which it reports next.
        self._next: dict[str, int] = {}
        #: How many jobs had been submitted when new ones were last looked for.
        self._submitted = 0
        #: Jobs of trials may have ended whose ends the search has not been told.
        self._ends_unread = False

    def follow(
        self, state: State, event: ev.Event, trainings: dict[str, Training], live: dict[str, Training]
    ) -> list[Training]:
        """Add the trainings of trials that the controller has submitted.

        Args:
            state: the controller's, after the event.
            event: the event.
            trainings: all trainings, by job.
            live: those that have not ended.

        Returns:
            The trainings of trials that the controller has ended.
        """
        sweep = state.sweeps.get(self.sweep.id)
        if sweep is None:
            return []
        self.ended = sweep.search.phase not in ("running", "paused")
        if state.submitted != self._submitted:
            self._submitted = state.submitted
            for job_id, trial_job in sweep.trial_jobs.items():
                if job_id not in trainings:
                    self._trial_of[job_id] = trial_job.trial
                    parameters = sweep.search.trials[trial_job.trial].parameters or {}
                    trainings[job_id] = live[job_id] = self._training(job_id, parameters, state.now_s)
        if type(event) not in (ev.ObjectivesRead, ev.WorkerExited, ev.TimerFired):
            return []
        self._ends_unread = True
        jobs = state.jobs
        return [each for each in live.values() if each.id not in jobs or jobs[each.id].phase in ENDED]

    def next_event(self, state: State, now_s: float) -> ev.Event | None:
        """Return what the search is to be told next: that all reports of an ended trial are read, or a suggestion.

        Args:
            state: the controller's.
            now_s: the time, in seconds.
        """
        sweep = state.sweeps[self.sweep.id]
        if self._ends_unread:
            for job_id, trial_job in sweep.trial_jobs.items():
                if trial_job.ended:
                    return ev.ObjectivesRead(time_s=now_s, job=job_id, complete=True)
            self._ends_unread = False
        if self._suggest is not None and self.sweep.suggester == "optuna" and not self.ended:
            for trial in sweep.search.trials.values():
                if trial.phase == "asked":
                    parameters = self._suggest(sweep, trial.number)
                    return ev.TrialSuggested(
                        time_s=now_s, sweep=self.sweep.id, trial=trial.number, parameters=parameters
                    )
        return None

    def report(self, training: Training, now_s: float, node_s: float) -> tuple[ev.ObjectivesRead, bool]:
        """Return the report of a trial that has reached its goal, and whether its script ends then.

        Args:
            training: the trial's training; its goal becomes the next report.
            now_s: the time, in seconds.
            node_s: node-seconds that all trials have held.
        """
        curve, index = self._curve_of[training.id], self._next[training.id]
        budget = self._curves.budgets[index]
        value = curve.values[index]
        self.reports.append(TrialReport(now_s, node_s, self._trial_of[training.id], budget, value))
        ends = budget >= self._max_budget
        if not ends:
            self._next[training.id] = index + 1
            training.goal = self._curves.budgets[index + 1] * curve.unit_s
            training.goals += 1
        report = ev.ObjectiveReport(budget, value)
        return ev.ObjectivesRead(time_s=now_s, job=training.id, reports=(report,)), ends

    def note_log(self, effect: ef.WriteLog, now_s: float, node_s: float) -> None:
        """Keep a line of the sweep's log.

        Args:
            effect: the line; those of other subjects are not kept.
            now_s: the time, in seconds.
            node_s: node-seconds that all trials have held.
        """
        if effect.subject == self.sweep.id:
            self.log.append(LogLine(now_s, node_s, effect.text))

    def _training(self, job_id: str, parameters: ParameterValues, now_s: float) -> Training:
        curve = self._curves.nearest(self.sweep.space, parameters)
        self._curve_of[job_id], self._next[job_id] = curve, 0
        job, options = self.sweep.job, self._options
        listed = ListedJob(
            id=job_id,
            curve_name=self.sweep.id,
            curve=scaling_curve(self.sweep),
            submit_s=now_s,
            min_nodes=job.sizes.smallest,
            max_nodes=job.sizes.largest,
            samples=1.0,
            grow_cost_s=_GROW_S if job.grow_cost_s is None else job.grow_cost_s,
            shrink_cost_s=_SHRINK_S if job.shrink_cost_s is None else job.shrink_cost_s,
        )
        training = Training.of(job_id, listed, now_s, options.accounting, options.commit_s)
        training.goal = self._curves.budgets[0] * curve.unit_s
        return training


#: What a resize costs a job that does not say it: the defaults of the controller's settings.
_GROW_S, _SHRINK_S = 0.3, 0.2


def check_table(sweep: Sweep, curves: LearningCurves) -> None:
    """Raise InputError if the sweep cannot be replayed with this table.

    Args:
        sweep: the sweep.
        curves: the table of learning curves.
    """
    curves.check(sweep.space)
    scheduler = load(sweep.scheduler)
    if sweep.scheduler.name == "pbt":
        raise InputError(
            "scheduler pbt: a table has trainings whose parameters stay the same.",
            next_step="Choose another scheduler.",
        )
    if sweep.direction != curves.direction:
        raise InputError(
            f"curves: the table's values are to {curves.direction}, those of the sweep to {sweep.direction}.",
            next_step="Correct `direction` in the sweep file.",
        )
    if scheduler.max_budget not in curves.budgets:
        raise InputError(
            f"curves: no report at the whole budget of a trial, {scheduler.max_budget:g}; the table's budgets end at "
            f"{curves.budgets[-1]:g}.",
            next_step="Set max_budget to one of the table's budgets.",
        )


def scaling_curve(sweep: Sweep) -> ScalingCurve:
    """Return the scaling curve of a sweep's trials: that of its job, or throughput in proportion to the nodes.

    Args:
        sweep: the sweep.
    """
    largest = sweep.job.sizes.largest
    if sweep.job.curve is not None:
        return sweep.job.curve
    sizes = tuple(dict.fromkeys((1, largest)))
    return ScalingCurve(sizes, tuple(float(size) for size in sizes))


def replayed_sweep(sweep: Sweep, options: ReplayOptions) -> Sweep:
    """Return the sweep as the controller gets it in a replay: with its curve and its costs, unless these are learned.

    Args:
        sweep: the sweep.
        options: what the replay assumes.
    """
    job, cost = replace(sweep.job, mode="session"), options.cost
    if options.profiler != "oracle":
        return replace(sweep, job=replace(job, curve=None))
    listed = _GROW_S if job.grow_cost_s is None else job.grow_cost_s
    listed_shrink = _SHRINK_S if job.shrink_cost_s is None else job.shrink_cost_s
    job = replace(
        job,
        curve=scaling_curve(sweep),
        grow_cost_s=listed if cost.grow_s is None else cost.grow_s,
        shrink_cost_s=listed_shrink if cost.shrink_s is None else cost.shrink_s,
    )
    return replace(sweep, job=job)


def best_so_far(reports: list[TrialReport], direction: str) -> list[TrialReport]:
    """Return the reports that were better than all before them.

    Args:
        reports: all reports, in order.
        direction: `minimize` or `maximize`.
    """
    sign = 1.0 if direction == "minimize" else -1.0
    found: list[TrialReport] = []
    for report in reports:
        if report.value == report.value and (not found or sign * report.value < sign * found[-1].value):
            found.append(report)
    return found
