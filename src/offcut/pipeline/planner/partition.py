"""Exact partitions of a chain of layers into stages, for devices in a fixed order.

Two objectives over all contiguous cuts, both solved exactly, with transfers, memory and mixed devices:

* `balance` makes the slowest stage as fast as possible (min-max), which sets the rate of a long pipeline;
* `least_bound` makes the lower bound of a synchronous step of m micro-batches as low as possible,
  max_b [ sum_{s<b} (t_s + 2 c_s) + m t_b ], which also counts how long the pipeline takes to fill.
  A rank that sends one message at a time gives a second bound, with m (c_in + c_out) - c_in in place of m t_b.

Both are dynamic programmes over (stages, layers), O(L^2 S) at worst; times only grow with an interval, so the inner
loop stops early and costs about L^2 in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from offcut.pipeline.hardware import Link
from offcut.pipeline.layer_profile import Chain, Floats

Cuts = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSlots:
    """The S places on which stages run, in order.

    `chains[s]` is the model's chain as the devices of place s run it. `links[b]` joins place b to b + 1. A stage of
    parameters w and activations a (its input included) fits place s where
    `state_factor * w + in_flight[s] * a <= memory_bytes[s]`. `overlap` False: transfers add to computing.
    """

    chains: Sequence[Chain]
    links: Sequence[Link]
    memory_bytes: Sequence[float]
    in_flight: Sequence[int]
    state_factor: float = 2.0
    overlap: bool = True


@dataclass(frozen=True, slots=True)
class Split:
    """Stage s has the layers `[cuts[s], cuts[s + 1])`; `value_s` is the objective's value."""

    cuts: Cuts
    value_s: float


def balance(slots: StageSlots) -> Split | None:
    """Find the split whose slowest stage is fastest (min-max).

    A stage's time is max(F + B, transfers that it sends) with overlap, and F + B + both directions of both boundaries
    without.

    Args:
        slots: the places, S of them.

    Returns:
        The split; its value is the slowest stage's seconds per micro-batch. None if no split fits the memory or there
        are fewer layers than places.
    """
    value, chosen = _balance(_arrays(slots))
    return None if not np.isfinite(value) else Split(tuple(int(c) for c in chosen), float(value))


def least_bound(slots: StageSlots, micro_batches: int, *, tolerance: float = 1e-9) -> Split | None:
    """Find the split with the lowest bound of a synchronous step.

    It bisects on the bound: for a given T the split with the shortest prefix in front of every stage dominates, so one
    pass decides whether T can be met, and the bound of the split that meets it is the next T.

    Args:
        slots: the places.
        micro_batches: micro-batches of one step.
        tolerance: how near to the lowest bound is enough, as a share of it.

    Returns:
        The split, its value the bound in seconds; None as for `balance`.
    """
    start = balance(slots)
    if start is None:
        return None
    arrays = _arrays(slots)
    best_cuts = np.array(start.cuts, dtype=np.int64)
    high = float(_bound_of(best_cuts, micro_batches, arrays))
    low = micro_batches * float(np.min([chain.total_s for chain in slots.chains])) / len(slots.chains)
    low = min(low, high) * (1 - 1e-9)
    while high - low > tolerance * high:
        middle = 0.5 * (low + high)
        feasible, cuts = _within(middle, micro_batches, arrays)
        if feasible:
            value = float(_bound_of(cuts, micro_batches, arrays))
            if value < high:
                high, best_cuts = value, cuts
            else:
                break
        else:
            low = middle
    return Split(tuple(int(c) for c in best_cuts), high)


def split_bound(slots: StageSlots, cuts: Cuts, micro_batches: int) -> float:
    """Return the objective of `least_bound` for one split.

    Args:
        slots: the places, S of them.
        cuts: shape (S + 1,); stage s has the layers `[cuts[s], cuts[s + 1])`.
        micro_batches: micro-batches of one step.

    Returns:
        Seconds.
    """
    return float(_bound_of(np.array(cuts, dtype=np.int64), micro_batches, _arrays(slots)))


class _SlotArrays(NamedTuple):
    """Places and layers in the form that the compiled searches take; sums are over the layers before a cut."""

    #: Shape (S, L + 1): seconds of a micro-batch, forward and backward, on each place.
    times: NDArray[np.float64]
    #: Shape (L + 1,): no way to a cut takes less.
    soonest: NDArray[np.float64]
    #: Shape (S + 1, L + 1): seconds of a transfer into place s at a cut; 0 at both ends.
    hop: NDArray[np.float64]
    #: Shape (L + 1,): bytes of state and of stored activations.
    state: NDArray[np.float64]
    stored: NDArray[np.float64]
    #: Shape (L + 1,): bytes that cross the cut; not a sum.
    cut_bytes: NDArray[np.float64]
    #: Shape (S,): each place's memory in bytes, and the micro-batches that it keeps.
    limits: NDArray[np.float64]
    in_flight: NDArray[np.float64]
    overlap: bool


def _arrays(slots: StageSlots) -> _SlotArrays:
    """Build the arrays of the compiled searches."""
    stages = len(slots.chains)
    first = slots.chains[0]
    times = np.zeros((stages, first.layers + 1))
    seen: dict[int, Floats] = {}
    for s, chain in enumerate(slots.chains):
        if id(chain) not in seen:
            seen[id(chain)] = np.append(0.0, np.cumsum(chain.forward_s + chain.backward_s))
        times[s] = seen[id(chain)]
    hop = np.zeros((stages + 1, first.layers + 1))
    for b, link in enumerate(slots.links[: stages - 1]):
        hop[b + 1] = np.where(first.cut_bytes > 0, link.latency_s + first.cut_bytes / link.bandwidth_bytes_s, 0.0)
    state = slots.state_factor * np.append(0.0, np.cumsum(first.parameter_bytes))
    stored = np.append(0.0, np.cumsum(first.stored_bytes))
    limits = np.array(slots.memory_bytes[:stages], dtype=float)
    in_flight = np.array(slots.in_flight[:stages], dtype=float)
    # No way to a layer is shorter than every layer before it on the device that does it fastest.
    per_layer = np.min([np.diff(times[s]) for s in range(stages)], axis=0)
    soonest = np.append(0.0, np.cumsum(per_layer))
    return _SlotArrays(times, soonest, hop, state, stored, first.cut_bytes, limits, in_flight, slots.overlap)


@njit(cache=True)
def _fits(arrays, s, i, j):  # type: ignore[no-untyped-def]
    """Return True if layers i to j - 1 fit the memory of place s."""
    if np.isinf(arrays.limits[s]):
        return True
    activations = arrays.stored[j] - arrays.stored[i] + arrays.cut_bytes[i]
    return arrays.state[j] - arrays.state[i] + arrays.in_flight[s] * activations <= arrays.limits[s]


@njit(cache=True)
def _cuts_to_the_end(came):  # type: ignore[no-untyped-def]
    """Follow the choices back: `came[s, j]` is the cut before place s - 1 on the best way to cut j; all 0 if none."""
    stages, layers = came.shape[0] - 1, came.shape[1] - 1
    cuts = np.zeros(stages + 1, dtype=np.int64)
    if came[stages, layers] >= 0:
        cuts[stages] = layers
        for s in range(stages, 0, -1):
            cuts[s - 1] = came[s, cuts[s]]
    return cuts


@njit(cache=True)
def _balance(arrays):  # type: ignore[no-untyped-def]
    """Find the min-max split; returns its value (s) and its cuts."""
    times, hop = arrays.times, arrays.hop
    stages, n = times.shape
    layers = n - 1
    best = np.full((stages + 1, n), np.inf)
    came = np.full((stages + 1, n), -1, dtype=np.int64)
    best[0, 0] = 0.0
    for s in range(stages):
        for j in range(s + 1, layers - (stages - 1 - s) + 1):
            here = np.inf
            for i in range(j - 1, s - 1, -1):
                compute = times[s, j] - times[s, i]
                if compute >= here:
                    break
                if best[s, i] >= here or not _fits(arrays, s, i, j):
                    continue
                moved = hop[s, i] + hop[s + 1, j]
                cost = max(best[s, i], max(compute, moved) if arrays.overlap else compute + 2 * moved)
                if cost < here:
                    here = cost
                    came[s + 1, j] = i
            best[s + 1, j] = here
    return best[stages, layers], _cuts_to_the_end(came)


@njit(cache=True)
def _work_s(arrays, m, s, i, j):  # type: ignore[no-untyped-def]
    """Return the seconds that place s is busy with m micro-batches of the layers i to j - 1."""
    times, hop = arrays.times, arrays.hop
    compute = times[s, j] - times[s, i]
    moved = hop[s, i] + hop[s + 1, j]
    return max(m * compute, m * moved - hop[s, i]) if arrays.overlap else m * (compute + 2 * moved) - 2 * hop[s, i]


@njit(cache=True)
def _bound_of(cuts, micro_batches, arrays):  # type: ignore[no-untyped-def]
    """Return the bound (s) of a step with these cuts."""
    times, hop = arrays.times, arrays.hop
    prefix = 0.0
    bound = 0.0
    for s in range(len(cuts) - 1):
        bound = max(bound, prefix + _work_s(arrays, micro_batches, s, cuts[s], cuts[s + 1]))
        prefix += times[s, cuts[s + 1]] - times[s, cuts[s]] + 2 * hop[s + 1, cuts[s + 1]]
    return bound


@njit(cache=True)
def _within(limit, micro_batches, arrays):  # type: ignore[no-untyped-def]
    """Search for a split whose bound is within `limit` seconds; returns True and its cuts if there is one."""
    times, hop, soonest = arrays.times, arrays.hop, arrays.soonest
    stages, n = times.shape
    layers = n - 1
    prefix = np.full((stages + 1, n), np.inf)
    came = np.full((stages + 1, n), -1, dtype=np.int64)
    prefix[0, 0] = 0.0
    for s in range(stages):
        for j in range(s + 1, layers - (stages - 1 - s) + 1):
            for i in range(j - 1, s - 1, -1):
                compute = times[s, j] - times[s, i]
                if soonest[i] + micro_batches * compute > limit:
                    break
                if np.isinf(prefix[s, i]) or not _fits(arrays, s, i, j):
                    continue
                if prefix[s, i] + _work_s(arrays, micro_batches, s, i, j) > limit:
                    continue
                value = prefix[s, i] + compute + 2 * hop[s + 1, j]
                if value < prefix[s + 1, j]:
                    prefix[s + 1, j] = value
                    came[s + 1, j] = i
    return np.isfinite(prefix[stages, layers]), _cuts_to_the_end(came)
