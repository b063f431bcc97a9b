"""Draw idle windows from a `WindowProcess`: any number of nodes, any duration, one seed, always the same windows."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from offcut.errors import InputError
from offcut.traces.window_process import LEVELS, SUMMIT, WindowProcess
from offcut.traces.windows import Floats, Ints, Windows, node_names

#: Seconds between steps of the hidden level; short compared with its memory.
_STEP_S = 60.0
#: The end of a window moves to the nearest instant at which the queue takes nodes if that changes its length by no
#: more than this share: such instants are shared by groups, and further moves would bend the length distribution.
_END_TOLERANCE = 0.25
#: A node that was idle a moment ago is likelier to be idle again: its chance falls as 1 / (time since + this).
_RETURN_S = 120.0


@dataclass(frozen=True, slots=True)
class WindowGroups:
    """Groups of windows that are not placed on nodes yet.

    `count[i]` windows open at `start_s[i]` and end at `end_s[i]`; ordered by start.
    """

    start_s: Floats
    end_s: Floats
    count: Ints


def generate(nodes: int, duration_s: float, seed: int, process: WindowProcess = SUMMIT) -> Windows:
    """Draw idle windows of nodes `n0000`, `n0001`, ... in `[0, duration_s)`; windows that cross a border are cut.

    Args:
        nodes: the number of nodes.
        duration_s: the length of the time, in seconds.
        seed: the seed of the random numbers.
        process: the process to draw from.

    Returns:
        The windows, in whole seconds.

    Raises:
        InputError: `nodes` or `duration_s` is not greater than 0.
    """
    if nodes < 1:
        raise InputError(f"nodes must be at least 1, but is {nodes}.", next_step="Ask for at least 1 node.")
    if not (math.isfinite(duration_s) and duration_s > 0):
        raise InputError(
            f"duration must be greater than 0, but is {duration_s} s.", next_step="Ask for more than 0 seconds."
        )
    rng = np.random.default_rng(seed)
    warm_up_s = float(math.ceil(process.length_s[LEVELS.index(0.99)] + process.memory_s))
    groups = draw_groups(process, nodes, warm_up_s + duration_s, rng)
    node, start, end = _place(groups, nodes, rng)
    start, end = np.maximum(start - warm_up_s, 0.0), np.minimum(end - warm_up_s, duration_s)
    end = np.floor(end)
    kept = end > start
    return Windows.from_indices(node_names(nodes), node[kept], start[kept], end[kept])


def draw_groups(process: WindowProcess, nodes: int, duration_s: float, rng: np.random.Generator) -> WindowGroups:
    """Draw the times at which windows open and end, without placing them on nodes.

    Args:
        process: the process to draw from.
        nodes: the number of nodes of the machine.
        duration_s: the length of the time, in seconds.
        rng: the source of random numbers.

    Returns:
        Groups of windows, ordered by start.
    """
    level = _hidden_level(process.memory_s, duration_s, rng)
    opens = _instants(level, process.opens_per_h, process.swing, rng)
    takes = _instants(level, process.ends_per_h, process.swing, rng)
    size = _quantile(process.group_size, rng.random(len(opens))) * nodes / process.nodes
    left = np.floor(size + rng.random(len(size))).astype(np.int64)
    theta = 1 / process.together - 1
    starts, ends, counts = [], [], []
    while left.any():
        share = rng.beta(1.0, theta, len(left)) if theta > 0 else np.ones(len(left))
        count = rng.binomial(left, share)
        left = left - count
        some = count > 0
        start = opens[some]
        starts.append(start)
        ends.append(_gather(start, _quantile(process.length_s, rng.random(len(start))), takes))
        counts.append(count[some])
    if not starts:
        return WindowGroups(np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
    start, end, count = np.concatenate(starts), np.concatenate(ends), np.concatenate(counts)
    order = np.lexsort((end, start))
    return WindowGroups(start[order], end[order], count[order])


def _hidden_level(memory_s: float, duration_s: float, rng: np.random.Generator) -> Floats:
    keep = math.exp(-_STEP_S / memory_s)
    noise = rng.standard_normal(math.ceil(duration_s / _STEP_S)).tolist()
    noise[1:] = [math.sqrt(1 - keep * keep) * value for value in noise[1:]]
    level = noise[0]
    levels = [level]
    for value in noise[1:]:
        level = keep * level + value
        levels.append(level)
    return np.array(levels)


def _instants(level: Floats, per_h: float, swing: float, rng: np.random.Generator) -> Floats:
    """Return the instants of a Poisson process whose rate follows the level, in whole seconds."""
    rate = per_h / 3600 * np.exp(swing * level - swing * swing / 2)
    steps = np.repeat(np.arange(len(level)), rng.poisson(rate * _STEP_S))
    return np.unique(np.floor((steps + rng.random(len(steps))) * _STEP_S))


def _gather(start: Floats, length: Floats, takes: Floats) -> Floats:
    """Return the ends of windows, each moved to the nearest instant at which the queue takes nodes if that is near."""
    end = start + np.maximum(1.0, np.round(length))
    if not len(takes):
        return end
    after = np.minimum(np.searchsorted(takes, end), len(takes) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(takes[after] - end) < np.abs(takes[before] - end), takes[after], takes[before])
    return np.where(np.abs(nearest - end) <= _END_TOLERANCE * (end - start), nearest, end)


def _place(groups: WindowGroups, nodes: int, rng: np.random.Generator) -> tuple[Ints, Floats, Floats]:
    """Assign every window to a node that is not idle at its start.

    If more windows begin than there are busy nodes, the rest begins later, when nodes have become busy. Leaving them
    out would lose their node-time: a fifth of it on a machine that is idle for a third of the time.
    """
    idle_until = np.full(nodes, -math.inf)
    chosen: list[Ints] = []
    starts, ends = [], []
    borders = np.flatnonzero(np.diff(groups.start_s, prepend=-1.0, append=math.inf)).tolist()
    length_s = groups.end_s - groups.start_s
    # (instant, number, lengths of the windows that begin then); the number tells equal instants apart.
    beginnings: list[tuple[float, int, Floats]] = [
        (float(groups.start_s[a]), a, np.repeat(length_s[a:b], groups.count[a:b])) for a, b in pairwise(borders)
    ]
    last_s = beginnings[-1][0] if beginnings else 0.0
    number = len(length_s)
    heapq.heapify(beginnings)
    while beginnings:
        now, _, wanted = heapq.heappop(beginnings)
        candidates = np.flatnonzero(idle_until < now)
        if len(wanted) > len(candidates):
            retry_s = (idle_until.min() if not len(candidates) else now) + _RETURN_S
            if retry_s <= last_s:
                heapq.heappush(beginnings, (float(retry_s), number, wanted[len(candidates) :]))
                number += 1
            wanted = wanted[: len(candidates)]
        elif len(wanted) < len(candidates):
            # The largest of log-weight + Gumbel noise: a draw without replacement in proportion to the weights.
            away = np.minimum(now - idle_until[candidates], now + _RETURN_S)
            key = rng.gumbel(size=len(candidates)) - np.log(away + _RETURN_S)
            candidates = candidates[np.argpartition(-key, len(wanted) - 1)[: len(wanted)]]
            candidates.sort()
        idle_until[candidates] = now + wanted
        chosen.append(candidates)
        starts.append(np.full(len(wanted), now))
        ends.append(now + wanted)
    if not chosen:
        return np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    return np.concatenate(chosen), np.concatenate(starts), np.concatenate(ends)


def _quantile(table: tuple[float, ...], probability: Floats) -> Floats:
    """Return the quantile function through `table`, linear in the logarithm between its levels."""
    return np.exp(np.interp(probability, LEVELS, np.log(table)))
