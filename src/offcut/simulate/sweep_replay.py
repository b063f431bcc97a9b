"""Replays a sweep on idle windows: the controller and the search that run live, with recorded learning curves."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from offcut.control import State
from offcut.errors import InputError
from offcut.model import events as ev
from offcut.model.sweep import Sweep
from offcut.search.trials import best
from offcut.simulate.event_loop import EventLoop
from offcut.simulate.job_arrivals import JobArrivals
from offcut.simulate.metrics import ReplayMetrics, measure
from offcut.simulate.options import ReplayOptions
from offcut.simulate.replay import run_windows, solver_of, without_collection
from offcut.simulate.sweep_trials import LogLine, Suggest, SweepTrials, TrialReport, best_so_far
from offcut.simulate.training import Training
from offcut.traces.learning_curves import LearningCurves
from offcut.traces.windows import Windows


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepMetrics:
    """What came of a replayed sweep. Times in s since its submission; node-hours are those that its trials held."""

    #: `finished`, or `running` if the windows ended before the search did.
    phase: str
    #: From the submission to the end of the search, or of the windows.
    span_s: float
    node_h: float
    #: The number of trials by phase: `completed`, `stopped`, `halted`, `failed`, ....
    trials: dict[str, int]
    #: The budget that all results together took.
    used_budget: float
    best: dict[str, Any] | None
    #: Each report that was better than all before: `time_s`, `node_h`, `value`, `trial`, `budget`.
    best_over_time: list[dict[str, float]]
    #: Every line of the sweep's log, suggestions and decisions at rungs: `time_s`, `node_h`, `text`.
    log: list[dict[str, Any]]
    promotions: int
    halts: int
    stops: int
    #: How often nodes of a trial were reclaimed, and how many of these took its last node.
    reclaims: int
    last_node_reclaims: int
    #: Reclaims by the number of trials that had nodes just before.
    reclaims_by_trials: dict[int, int]
    #: Trials that failed. A reclaim does not let a trial fail.
    failed: int
    replay: ReplayMetrics

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics as a JSON value."""
        return asdict(self)


def replay_sweep(
    windows: Windows,
    sweep: Sweep,
    curves: LearningCurves,
    options: ReplayOptions,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    suggest: Suggest | None = None,
    progress: Callable[[float], None] | None = None,
    observe: Callable[[State, ev.Event], None] | None = None,
) -> SweepMetrics:
    """Replay a sweep on idle windows until its search or the windows end.

    Args:
        windows: the idle windows.
        sweep: the sweep; it is submitted at the start.
        curves: what its trials report, and how long a unit of budget takes them.
        options: the assumptions; `concurrency` and `repeat` are of job lists and must be as they are by default.
        start_s: the start of the replayed time, in seconds; None: the first window.
        end_s: its end, in seconds; None: the end of the last window.
        suggest: answers for the suggester `optuna`.
        progress: called from time to time with the share of the windows' time that is done.
        observe: called after each event with the controller's state and the event.

    Returns:
        The metrics.

    Raises:
        InputError: no node is idle in that time, or the table does not fit the sweep.
    """
    first_s, last_s = windows.span_s
    start_s = first_s if start_s is None else start_s
    end_s = last_s if end_s is None else end_s
    part = windows.between(start_s, end_s)
    if not len(part):
        raise InputError(
            f"replay: no node is idle from {start_s:g} to {end_s:g} s.",
            next_step=f"The windows span {first_s:g} to {last_s:g} s.",
        )
    if options.concurrency is not None or options.repeat:
        raise InputError(
            "replay: a sweep says itself how many trials run at once.", next_step="Set `parallel` in the sweep file."
        )
    trials = SweepTrials(sweep, curves, options, suggest)
    reclaims = _ReclaimCount()

    def note(state: State, event: ev.Event) -> None:
        reclaims.note(event, loop.trainings.values())
        if observe is not None:
            observe(state, event)

    began = time.process_time()
    loop = EventLoop(
        JobArrivals([], repeat=False), solver_of(options.policy), options, start_s, trials=trials, observe=note
    )
    with without_collection():
        loop.submit(trials.sweep)
        instants = run_windows(loop, part, start_s, end_s, progress, ended=lambda: trials.ended)
        if not trials.ended:
            loop.run_until(end_s)
    stop_s = loop.now_s if trials.ended else end_s
    loop.finish(stop_s)
    reclaims.finish(loop.trainings.values())
    replayed = measure(
        loop,
        options,
        start_s,
        max(stop_s, math.nextafter(start_s, math.inf)),
        instants=instants,
        cpu_s=time.process_time() - began,
        static_rate=None,
    )
    return _metrics(loop, trials, reclaims, start_s, replayed)


def _metrics(
    loop: EventLoop, trials: SweepTrials, reclaims: _ReclaimCount, start_s: float, replayed: ReplayMetrics
) -> SweepMetrics:
    search = loop.state.sweeps[trials.sweep.id].search
    phases: Counter[str] = Counter(trial.phase for trial in search.trials.values())
    found = best(search.trials, search.sweep.direction)
    texts = [line.text.partition(": ")[2] for line in trials.log if line.text.startswith("trial ")]
    return SweepMetrics(
        phase=search.phase,
        span_s=replayed.end_s - start_s,
        node_h=replayed.used_node_h,
        trials=dict(phases),
        used_budget=search.used_budget,
        best=None
        if found is None
        else {
            "trial": found[0].number,
            "value": found[1].value,
            "budget": found[1].budget,
            "parameters": found[0].parameters,
        },
        best_over_time=[_report(each, start_s) for each in best_so_far(trials.reports, search.sweep.direction)],
        log=[_line(each, start_s) for each in trials.log],
        promotions=sum(text.startswith("promoted") for text in texts),
        halts=sum(text.startswith("halted") for text in texts),
        stops=sum(text.startswith("stopped") for text in texts),
        reclaims=replayed.reclaims,
        last_node_reclaims=replayed.last_node_reclaims,
        reclaims_by_trials=dict(sorted(reclaims.by_trials.items())),
        failed=phases["failed"],
        replay=replayed,
    )


def _report(report: TrialReport, start_s: float) -> dict[str, float]:
    return {
        "time_s": report.time_s - start_s,
        "node_h": report.node_s / 3600,
        "value": report.value,
        "trial": report.trial,
        "budget": report.budget,
    }


def _line(line: LogLine, start_s: float) -> dict[str, Any]:
    return {"time_s": line.time_s - start_s, "node_h": line.node_s / 3600, "text": line.text}


class _ReclaimCount:
    """Counts reclaims of trials' nodes by the number of trials that had nodes just before."""

    def __init__(self) -> None:
        self.by_trials: Counter[int] = Counter()
        #: The number of trials with nodes, and of reclaims so far, before the last change of nodes.
        self._before: tuple[int, int] | None = None

    def note(self, event: ev.Event, trainings: Iterable[Training]) -> None:
        """Note an event, before its effects are carried out.

        Args:
            event: the event.
            trainings: the trainings of all trials.
        """
        if isinstance(event, ev.NodesChanged) and event.wanted:
            self.finish(trainings)
            self._before = sum(each.size > 0 for each in trainings), sum(each.reclaims for each in trainings)

    def finish(self, trainings: Iterable[Training]) -> None:
        """Count the reclaims of the last change of nodes.

        Args:
            trainings: the trainings of all trials.
        """
        if self._before is not None:
            trials, reclaims = self._before
            if found := sum(each.reclaims for each in trainings) - reclaims:
                self.by_trials[trials] += found
            self._before = None
