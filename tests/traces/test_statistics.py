"""Statistics, the fit of the generator, the figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from offcut.errors import InputError
from offcut.model import Window
from offcut.report.windows_figure import draw_windows
from offcut.traces.fit_window_process import fit_process
from offcut.traces.generate import generate
from offcut.traces.statistics import describe, weighted_quantile
from offcut.traces.window_process import SUMMIT
from offcut.traces.windows import Windows, read_windows

FOUR = Windows.from_windows([Window("a", 0, 100), Window("b", 0, 100), Window("c", 0, 900), Window("a", 500, 1000)])


def test_statistics_by_hand():
    s = describe(FOUR, nodes=4, end_s=2000)
    assert s.windows == 4
    assert s.idle_node_hours == 1600 / 3600
    assert s.idle_share == 1600 / 8000
    assert s.idle_nodes_mean == 0.8
    # Changes at 0, 100, 500, 900 and 1000.
    assert s.events_per_h == 5 / 2000 * 3600
    assert s.short_windows == 0.75
    assert s.short_node_time == 700 / 1600
    # 3 nodes for 100 s, 1 for 400, 2 for 400, 1 for 100, 0 for 1000.
    assert s.idle_nodes == {"p5": 0, "p25": 0, "p50": 0, "p75": 1, "p95": 2}
    # a and b end together, c alone: (1/2 + 1/2 + 0) / 3.
    assert s.together == pytest.approx(1 / 3)


def test_statistics_of_an_interval_and_of_no_windows():
    assert describe(FOUR, start_s=50, end_s=600).idle_node_hours == (50 + 50 + 550 + 100) / 3600
    with pytest.raises(InputError, match="none from 1500 to 2000 s"):
        describe(FOUR, start_s=1500, end_s=2000)
    with pytest.raises(InputError, match="3 nodes are named, more than the 2 of the machine"):
        describe(FOUR, nodes=2)


def test_windows_that_all_begin_alone_have_no_joint_endings():
    assert describe(Windows.from_windows([Window("a", 0, 1), Window("b", 2, 3)])).together is None


def test_weighted_quantile_is_the_plain_one_for_equal_weights():
    values = np.random.default_rng(1).random(101)
    ours = weighted_quantile(values, np.ones(101), (0.05, 0.5, 0.95))
    np.testing.assert_array_equal(ours, np.quantile(values, (0.05, 0.5, 0.95), method="inverted_cdf"))


def test_statistics_of_summit_are_the_published_ones(shared: Path):
    s = describe(read_windows(shared / "data/summit/windows.csv.gz"))
    assert list(s.length_s.values()) == pytest.approx([91, 162, 475, 1_397, 3_269, 4_723, 9_246], rel=1e-4)
    assert list(s.idle_nodes.values()) == [1, 13, 81, 502, 1_732]
    assert s.events_per_h == pytest.approx(66.7, abs=0.05)
    assert s.short_windows == pytest.approx(0.558, abs=0.0005)
    assert s.short_node_time == pytest.approx(0.109, abs=0.0005)
    assert s.together == pytest.approx(0.77, abs=0.005)
    assert s.idle_node_hours / 4_608 / 358.2 == pytest.approx(0.085, abs=0.0005)


def test_a_fitted_generator_reproduces_another_machine():
    """A made-up machine of 500 nodes: twice as many groups, lengths a third, no joint endings."""
    other = replace(
        SUMMIT, nodes=500, opens_per_h=60.0, length_s=tuple(x / 3 for x in SUMMIT.length_s), together=0.3, swing=1.0,
        group_size=tuple(1 + x / 20 for x in SUMMIT.group_size),
    )  # fmt: skip
    trace = describe(generate(500, 4 * 86_400, 5, other))
    fitted = fit_process(generate(500, 4 * 86_400, 5, other), 500)
    drawn = describe(generate(500, 4 * 86_400, 6, fitted))
    assert drawn.idle_share == pytest.approx(trace.idle_share, rel=0.4)
    assert drawn.together == pytest.approx(trace.together, abs=0.06)
    for name, value in trace.length_s.items():
        assert drawn.length_s[name] == pytest.approx(value, rel=0.35)
    wide = describe(generate(1_500, 4 * 86_400, 6, fitted))
    assert wide.idle_share == pytest.approx(trace.idle_share, rel=0.4)


def test_fitting_needs_enough_windows():
    with pytest.raises(InputError, match="4 are too few to fit a process"):
        fit_process(FOUR)


def test_the_figure_is_drawn_and_a_bad_name_refused(tmp_path: Path):
    windows = generate(50, 86_400, 1)
    draw_windows(windows, describe(windows), tmp_path / "w.png", "fifty nodes")
    assert (tmp_path / "w.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(InputError, match=r"w\.nothing"):
        draw_windows(windows, describe(windows), tmp_path / "w.nothing", "fifty nodes")
