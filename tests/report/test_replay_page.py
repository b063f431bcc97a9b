"""The page of a replay names the runs by what differs, and shows each figure once per run."""

from __future__ import annotations

import re

import pytest

from offcut.model import ScalingCurve, Window
from offcut.report.replay_page import replay_page
from offcut.report.replay_rows import LOSSES, name_of, rows
from offcut.simulate.metrics import ReplayMetrics
from offcut.simulate.options import ReplayOptions, ResizeCost
from offcut.simulate.replay import replay
from offcut.traces.job_list import ListedJob
from offcut.traces.windows import Windows

EXACT, GREEDY = ReplayOptions(), ReplayOptions(policy="greedy")


@pytest.fixture(scope="module")
def metrics() -> ReplayMetrics:
    """One job that costs 10 s to start, on one node that is idle for 100 s."""
    curve = ScalingCurve((1, 2), (100.0, 190.0))
    job = ListedJob(
        id="a", curve_name="c", curve=curve, submit_s=0, min_nodes=1, max_nodes=2, samples=1e6, grow_cost_s=10,
        shrink_cost_s=4,
    )  # fmt: skip
    return replay(Windows.from_windows([Window("n1", 0, 100)]), [job], EXACT, compare=False)


def test_a_run_is_named_by_the_options_that_differ() -> None:
    assert [name_of(one, [EXACT, GREEDY]) for one in (EXACT, GREEDY)] == ["exact", "greedy"]
    slow = ReplayOptions(horizon_s=60.0, cost=ResizeCost(grow_s=18.0, shrink_s=12.0))
    assert name_of(slow, [EXACT, slow]) == "60 s, 18/12 s"
    assert name_of(EXACT, [EXACT]) == "exact"
    assert name_of(EXACT, [EXACT, ReplayOptions(concurrency=3)]) == "any number of jobs"


def test_the_rows_have_the_figures_of_each_run(metrics: ReplayMetrics) -> None:
    told = dict(rows([metrics, metrics]))
    assert told["Uf, work over fluid optimum"] == ["0.9000", "0.9000"]
    assert told["Us, against a static machine"] == ["–", "–"]
    assert told["  lost: standing still to grow or start"] == ["10.00%", "10.00%"]
    assert told["jobs submitted / started / finished"] == ["1 / 1 / 0"] * 2


def test_every_loss_has_a_row(metrics: ReplayMetrics) -> None:
    titles = [title for title, _ in rows([metrics])]
    assert [title.removeprefix("  lost: ") for title in titles if title.startswith("  lost: ")] == [*LOSSES.values()]


def test_the_page_has_a_column_for_each_run(metrics: ReplayMetrics) -> None:
    document = replay_page([(EXACT, metrics), (GREEDY, metrics)], "my <trace>")
    assert "Replay of my &lt;trace&gt;" in document
    assert re.findall(r"<th>(.*?)</th>", document) == ["", "exact", "greedy"]
    assert document.count("<svg") == 1
