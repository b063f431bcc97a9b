"""The report of a sweep has the figures of the controller's events, and names in it are text."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from world import World, job

from offcut.control import Settings, State, step
from offcut.model import events as ev
from offcut.model.search_space import CategoricalParameter, Condition, FloatParameter, IntParameter, SearchSpace
from offcut.model.sweep import SchedulerChoice, Sweep
from offcut.report.sweep_figures import rung_outcomes
from offcut.report.sweep_page import sweep_page
from offcut.report.sweep_parameters import importance
from offcut.report.sweep_record import MOST_REPORTS, BestSoFar, SweepRecord, SweepRecorder, TrialRecord, TrialSpan
from offcut.search.trials import Result

HOSTILE = "<script>alert(1)</script>$\\frac$"
SPACE = SearchSpace(
    (
        CategoricalParameter(name="act", choices=("relu", HOSTILE)),
        FloatParameter(name="lr", low=1e-4, high=1.0, log=True),
        IntParameter(name=HOSTILE, low=1, high=9, when=Condition("act", ("relu",))),
    )
)


def sweep(**fields: Any) -> Sweep:
    scheduler = SchedulerChoice("asha", (("max_budget", 9.0),))
    return Sweep(id="s-1", name="s", job=job("s-1", "1:2", max_failures=0), space=SPACE, scheduler=scheduler, **fields)


def recorded(world: World) -> SweepRecord:
    """Return the record of the world's events."""
    state, recorder = State(settings=Settings()), SweepRecorder("s-1")
    for event, _ in world.log:
        step(state, event)
        recorder.observe(state, event)
    record = recorder.record()
    assert record is not None
    return record


@pytest.fixture
def searched() -> World:
    """Three trials on one node: trial 0 is promoted after 1 at budget 1, trial 1 reports NaN, trial 2 fails."""
    world = World()
    world.offer("n1")
    world.send(ev.SweepSubmitted(time_s=world.now_s, sweep=sweep(max_trials=3)))
    world.until_settled()

    def report(number: int, budget: float, value: float) -> None:
        reports = (ev.ObjectiveReport(budget, value),)
        world.send(ev.ObjectivesRead(time_s=world.now_s, job=f"s-1.{number}", reports=reports))
        world.until_settled()

    world.run(10.0)
    report(0, 1.0, 2.0)
    report(1, 1.0, float("nan"))
    world.run(5.0)
    world.want("n1")
    world.run(5.0)
    world.offer("n1")
    world.until_settled()
    world.exit(world.member("s-1.2", "n1"), "failed", f"ValueError: {HOSTILE}")
    world.send(ev.ObjectivesRead(time_s=world.now_s, job="s-1.2", complete=True))
    return world


def test_node_time_reclaims_and_best_values_follow_from_the_events(searched: World) -> None:
    record = recorded(searched)
    assert [(best.value, best.trial) for best in record.best] == [(2.0, 0)]
    # The first trial booted for 3.2 s (claim, worker, generation) and trained 10 s more until it reported.
    assert 3600 * record.best[0].node_h == pytest.approx(13.0, abs=0.5)
    assert [(reclaim.node, reclaim.trial) for reclaim in record.reclaims] == [("n1", 2)]
    assert record.trials[2].reclaims == 1
    assert record.node_h == pytest.approx(sum(span.end_s - span.start_s for span in record.spans) / 3600)
    assert record.trials[1].nan_reports == 1
    assert {number: trial.phase for number, trial in record.trials.items()} == {0: "halted", 1: "halted", 2: "failed"}
    assert not record.partial


def test_the_page_escapes_names_and_fetches_nothing(searched: World) -> None:
    document = sweep_page(recorded(searched))
    assert "<script" not in document
    assert "default-src 'none'" in document
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#)""", document)
    cells = [unescape(cell) for cell in re.findall(r"<td.*?>(.*?)</td>", document)]
    assert any("ValueError: <script>" in cell for cell in cells)
    assert "1 report of NaN" in cells


def test_a_sweep_without_a_result_has_a_page() -> None:
    world = World()
    world.send(ev.SweepSubmitted(time_s=0.0, sweep=sweep()))
    assert "No trial has reported a number yet." in sweep_page(recorded(world))


def of_results(values: dict[int, list[float]], **parameters: list[object]) -> SweepRecord:
    """Return a record whose trials have these values at the rungs 1, 3, 9 ..., and these parameters."""
    trials = {}
    for number, rungs in values.items():
        results = [Result(float(3**place), value) for place, value in enumerate(rungs)]
        chosen: Any = {name: choices[number] for name, choices in parameters.items() if choices[number] is not None}
        trials[number] = TrialRecord(number, "halted", chosen, list(results), results[-1], results[-1], results)
    return SweepRecord(sweep(), "finished", "", 0.0, 100.0, False, trials, [], [], [])


def test_importance_finds_the_parameter_that_matters() -> None:
    act = ["relu" if number % 2 else HOSTILE for number in range(40)]
    lr = [10 ** -(number % 5) for number in range(40)]
    record = of_results({number: [float(number % 2) + 0.001 * number] for number in range(40)}, act=act, lr=lr)
    found = importance(record)
    assert found is not None
    assert next(iter(found.by_name)) == "act"
    assert found.by_name["act"] > 0.7
    assert found.by_name["lr"] < 0.1
    assert (found.rung, found.trials) == (1.0, 40)


def test_nan_is_the_worst_value_of_a_rung() -> None:
    record = of_results({0: [float("nan")], 1: [4.0], 2: [5.0]})
    record.best.append(BestSoFar(0.0, 4.0, 1))
    rung, trials, halted, best, median = "1", "3", "3", "4", "5"
    row = "".join(f"<td>{cell}</td>" for cell in (rung, trials, halted, best, median))
    assert f"<tr>{row}</tr>" in sweep_page(record)


def test_a_trial_counts_as_promoted_where_it_has_a_later_result() -> None:
    record = of_results({0: [3.0, 1.0], 1: [4.0], 2: [5.0]})
    record.trials[2].phase = "failed"
    assert rung_outcomes(record) == {1.0: {"promoted": 1, "halted": 1, "failed": 1}, 3.0: {"halted": 1}}


def test_a_thousand_trials_make_a_bounded_page() -> None:
    record = of_results({number: [1.0 / (number + 1), 0.5] for number in range(1200)}, lr=[0.01] * 1200)
    for trial in record.trials.values():
        for step_ in range(10 * MOST_REPORTS if trial.number == 0 else 2):
            trial.note(Result(10.0 + step_, 1.0), "minimize")
        record.spans += [TrialSpan(f"n{trial.number % 60}", trial.number, 1.0 * k, k + 0.9, True) for k in range(5)]
    assert len(record.trials[0].reports) <= MOST_REPORTS
    record.best.append(BestSoFar(record.node_h, 0.5, 0))
    document = sweep_page(record)
    assert len(document) < 3_000_000
    assert document.count("<tr>") < 1_100
    assert "The best 1,000 of 1,200 trials." in document
