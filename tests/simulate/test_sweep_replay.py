"""Sweeps in replay: the live controller and search, with reports out of a table of learning curves."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from offcut.errors import InputError
from offcut.model import Job, ScalingCurve, Sizes
from offcut.model.search_space import CategoricalParameter, SearchSpace
from offcut.model.sweep import SchedulerChoice, Sweep
from offcut.simulate.options import ReplayOptions, parse_cost
from offcut.simulate.sweep_replay import replay_sweep
from offcut.traces.learning_curves import LearningCurve, LearningCurves
from offcut.traces.windows import Windows, node_names

BUDGETS = tuple(float(budget) for budget in range(1, 10))
#: 30 configurations whose curves cross: the later a configuration is in the table, the slower and the better it learns.
TABLE = LearningCurves(
    direction="minimize",
    budgets=BUDGETS,
    curves=tuple(
        LearningCurve(
            parameters={"configuration": i},
            unit_s=50.0 + 7 * (i % 5),
            values=tuple(1.0 / (1 + i % 13) + math.exp(-budget / (1 + i % 7)) for budget in BUDGETS),
        )
        for i in range(30)
    ),
)
OPTIONS = ReplayOptions(cost=parse_cost("measured"))


def sweep_of(scheduler: str = "asha", *, sizes: str = "1:3", **fields) -> Sweep:
    job = Job(
        id="s", name="s", command=("t.py",), sizes=Sizes.parse(sizes), curve=ScalingCurve((1, 2, 3), (1, 1.9, 2.7))
    )
    return Sweep(
        id="s",
        name="s",
        job=job,
        space=SearchSpace((CategoricalParameter(name="configuration", choices=tuple(range(30))),)),
        scheduler=SchedulerChoice(scheduler, (("max_budget", 9.0),)),
        **{"suggester": "grid", "parallel": 10, "max_trials": 30} | fields,
    )


def dedicated(nodes: int, span_s: float = 1e6) -> Windows:
    return Windows.from_columns(node_names(nodes), [0.0] * nodes, [span_s] * nodes)


def coming_and_going(nodes: int, *, length_s: float = 300.0, pause_s: float = 40.0, count: int = 60) -> Windows:
    """Nodes that are idle for `length_s` at a time, each wanted at another moment."""
    rows = [(node, i * length_s / nodes, k) for i, node in enumerate(node_names(nodes)) for k in range(count)]
    starts = [offset + k * (length_s + pause_s) for _, offset, k in rows]
    return Windows.from_columns([node for node, _, _ in rows], starts, [start + length_s for start in starts])


def texts(metrics) -> list[str]:
    return [line["text"] for line in metrics.log]


def test_reports_come_from_the_table_after_the_work_that_they_take():
    metrics = replay_sweep(dedicated(1), sweep_of("none", parallel=1, max_trials=2), TABLE, ReplayOptions())
    assert metrics.phase == "finished"
    assert metrics.trials == {"completed": 2}
    # On one node: 9 units of 50 s, then 9 of 57 s; a start costs 0.3 s.
    assert metrics.span_s == pytest.approx(9 * 50 + 9 * 57 + 0.6, abs=0.01)
    assert metrics.node_h == pytest.approx(metrics.span_s / 3600)
    values = [*TABLE.curves[0].values, *TABLE.curves[1].values]
    best = [value for i, value in enumerate(values) if value < min(values[:i], default=math.inf)]
    assert [step["value"] for step in metrics.best_over_time] == best
    assert metrics.best_over_time[0]["time_s"] == pytest.approx(50.3)


@pytest.mark.parametrize("scheduler", ["asha", "asha-stopping", "hyperband", "median-stopping"])
def test_decisions_are_the_same_with_and_without_reclaims(scheduler):
    sweep, table = sweep_of(scheduler, order="logical", parallel=16), TABLE.scaled(600.0)
    undisturbed = replay_sweep(dedicated(20), sweep, table, OPTIONS)
    disturbed = replay_sweep(coming_and_going(20, length_s=450.0), sweep, table, OPTIONS)
    assert sum(count for trials, count in disturbed.reclaims_by_trials.items() if trials >= 8) >= 30
    assert undisturbed.reclaims == 0
    assert disturbed.phase == undisturbed.phase == "finished"
    assert texts(disturbed) == texts(undisturbed)
    assert disturbed.failed == undisturbed.failed == 0


def test_a_trial_that_is_halted_goes_on_from_its_state():
    metrics = replay_sweep(dedicated(4), sweep_of(), TABLE, ReplayOptions())
    assert metrics.promotions > 5
    held_s = metrics.node_h * 3600
    assert metrics.replay.shares.redone == 0
    # Each unit of budget was trained once: node-hours exceed the work by what resizes and scaling cost.
    assert metrics.used_budget * 50 < held_s < metrics.used_budget * 78 * 1.3


def test_stop_and_restart_takes_longer():
    ours = replay_sweep(coming_and_going(12), sweep_of(), TABLE, OPTIONS)
    restarting = replace(OPTIONS, cost=parse_cost("18:18"), commit_s=64.0, policy="first-come")
    theirs = replay_sweep(coming_and_going(12), sweep_of(sizes="2"), TABLE, restarting)
    assert theirs.replay.shares.redone > 0
    assert theirs.span_s > 1.2 * ours.span_s


def test_windows_may_end_before_the_search():
    metrics = replay_sweep(dedicated(4, span_s=600.0), sweep_of(), TABLE, OPTIONS)
    assert metrics.phase == "running"
    assert metrics.span_s == 600


def test_suggestions_may_come_from_elsewhere():
    sweep = sweep_of(suggester="optuna", max_trials=5)
    with pytest.raises(InputError, match="optuna"):
        replay_sweep(dedicated(4), sweep, TABLE, OPTIONS)
    metrics = replay_sweep(dedicated(4), sweep, TABLE, OPTIONS, suggest=lambda _, number: {"configuration": number + 7})
    assert "trial 0: new: configuration=7" in texts(metrics)


def test_curves_that_are_learned_are_shared_by_trials():
    metrics = replay_sweep(dedicated(6), sweep_of(max_trials=12), TABLE, replace(OPTIONS, profiler="gp"))
    assert metrics.phase == "finished"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"direction": "maximize"}, "minimize"),
        ({"space": SearchSpace((CategoricalParameter(name="lr", choices=(1,)),))}, "configuration"),
        ({"scheduler": SchedulerChoice("asha", (("max_budget", 27.0),))}, "27"),
        ({"scheduler": SchedulerChoice("pbt", (("max_budget", 9.0), ("interval", 1.0)))}, "pbt"),
    ],
)
def test_a_table_that_does_not_fit_the_sweep_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        replay_sweep(dedicated(2), replace(sweep_of(), **change), TABLE, OPTIONS)
