"""Fits the `WindowProcess` to a trace, so that windows with its statistics can be drawn for any machine size.

Rates, group sizes, lengths and joint endings are computed from the trace. What no single statistic tells, how strongly
and how long the level swings, is searched on a grid: the pair whose idle count has the quantiles and the persistence
nearest to the trace's, on one and the same random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from offcut.errors import InputError
from offcut.traces.generate import WindowGroups, draw_groups
from offcut.traces.statistics import joint_endings
from offcut.traces.window_process import LEVELS, WindowProcess
from offcut.traces.windows import Floats, Ints, Windows

_SWINGS = (0.0, 0.5, 1.0, 1.4, 1.7, 2.0, 2.3)
_MEMORIES_S = (600.0, 1_200.0, 2_400.0, 4_800.0, 9_600.0)
#: Random numbers that every pair of the grid is tried on.
_SEEDS = (1, 2, 3, 4)
_SAMPLE_S = 60.0
_LAGS_S = (600.0, 1_800.0, 7_200.0)
_COUNT_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
#: The mean idle count decides the node-time for training, so its weight is that of all quantiles together.
_LEVEL_WEIGHTS = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 5.0]) / 10.0
_MIN_WINDOWS = 100
_MAX_TRIAL_S = 14 * 86_400.0


@dataclass(frozen=True, slots=True)
class _Motion:
    """The mean and the quantiles of the idle count (logarithm of one more), and its correlation over `_LAGS_S`."""

    level: Floats
    persistence: Floats

    def distance(self, other: _Motion) -> float:
        """Return the weighted squared distance to another motion."""
        level = _LEVEL_WEIGHTS @ (self.level - other.level) ** 2
        return float(level + np.mean((self.persistence - other.persistence) ** 2))


def fit_process(windows: Windows, nodes: int | None = None) -> WindowProcess:
    """Fit the process to windows.

    Args:
        windows: the windows to reproduce.
        nodes: the number of nodes of their machine; None: the number of named nodes.

    Returns:
        The process.

    Raises:
        InputError: there are too few windows.
    """
    if len(windows) < _MIN_WINDOWS:
        raise InputError(
            f"windows: {len(windows)} are too few to fit a process.",
            next_step=f"Give a trace with at least {_MIN_WINDOWS}.",
        )
    start_s, end_s = windows.span_s
    hours = (end_s - start_s) / 3600
    _, group_size = np.unique(windows.start_s, return_counts=True)
    together = joint_endings(windows)
    measured = WindowProcess(
        nodes=len(windows.names) if nodes is None else nodes,
        opens_per_h=len(group_size) / hours,
        ends_per_h=len(np.unique(windows.end_s)) / hours,
        group_size=tuple(np.quantile(group_size, LEVELS, method="inverted_cdf").tolist()),
        length_s=tuple(np.quantile(windows.length_s, LEVELS).tolist()),
        # Alone, or never together, is as good as one in a hundred: the process needs a chance above 0.
        together=0.5 if together is None else min(max(together, 0.01), 1.0),
        swing=0.0,
        memory_s=_MEMORIES_S[0],
    )
    recorded = WindowGroups(windows.start_s, windows.end_s, np.ones(len(windows), np.int64))
    wanted = _motion(recorded, start_s, end_s, measured.nodes)
    trials = [replace(measured, swing=swing, memory_s=memory_s) for swing, memory_s in product(_SWINGS, _MEMORIES_S)]
    duration_s = min(end_s - start_s, _MAX_TRIAL_S)
    return min(trials, key=lambda trial: _typical(trial, duration_s).distance(wanted))


def _typical(process: WindowProcess, duration_s: float) -> _Motion:
    """Return the motion of the process, averaged over several seeds."""
    warm_up_s = process.length_s[LEVELS.index(0.99)]
    motions = []
    for seed in _SEEDS:
        drawn = draw_groups(process, process.nodes, warm_up_s + duration_s, np.random.default_rng(seed))
        to_s = warm_up_s + duration_s
        motions.append(_motion(drawn, warm_up_s, to_s, process.nodes))
    return _Motion(
        np.mean([motion.level for motion in motions], axis=0),
        np.mean([motion.persistence for motion in motions], axis=0),
    )


def _motion(groups: WindowGroups, from_s: float, to_s: float, nodes: int) -> _Motion:
    grid = np.arange(from_s, to_s, _SAMPLE_S)
    opened = _until(grid, groups.start_s, groups.count)
    ended = _until(grid, groups.end_s, groups.count)
    idle = np.minimum(opened - ended, nodes).astype(np.float64)
    level = np.log1p(np.concatenate((np.quantile(idle, _COUNT_LEVELS), [idle.mean()])))
    log_idle = np.log1p(idle)
    return _Motion(level, np.array([_correlation(log_idle, round(lag / _SAMPLE_S)) for lag in _LAGS_S]))


def _until(grid: Floats, times: Floats, count: Ints) -> Ints:
    order = np.argsort(times, kind="stable")
    total = np.concatenate(([0], np.cumsum(count[order])))
    return total[np.searchsorted(times[order], grid, "right")]


def _correlation(values: Floats, lag: int) -> float:
    a, b = values[:-lag], values[lag:]
    if len(a) < 2 or not (a.std() > 0 and b.std() > 0):
        return 1.0
    return float(np.corrcoef(a, b)[0, 1])
