"""The 1F1B family: a stage does some forwards ahead (its depth), then one backward and one forward in turn.

GPipe, 1F1B, 1F1B-SO and 1F1B-link differ only in the depth of each stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from offcut.pipeline.program import Program
from offcut.pipeline.schedules.base import Shape


def laid_out(depths: Callable[[Shape], list[int]]) -> Callable[[Shape], Program]:
    """Return the program function of a schedule that is defined by its depths alone.

    Args:
        depths: the depth of each stage of a shape.

    Returns:
        For `Schedule.program`.
    """
    return lambda shape: linear_program(shape, depths(shape))


def linear_program(shape: Shape, depths: Sequence[int]) -> Program:
    """Lay out 1F1B order with `depths[s]` micro-batches of stage s in flight, over all of its replicas together.

    Replica k of a stage with r of them takes micro-batches k, k + r, ... Depths are capped by `shape.caps`, then
    lowered where a later stage would wait for forwards that an earlier one does not do in time (deadlock).

    Args:
        shape: the pipeline.
        depths: the depth of each stage, shape (ranks,).

    Returns:
        The program.
    """
    replicas = np.array(shape.replica_counts, dtype=np.int64)
    local = safe_depths(shape, depths)
    kind, stage, micro_batch, lane_start = _lay_out(shape.micro_batches, replicas, local)
    return Program(
        stages=shape.ranks,
        micro_batches=shape.micro_batches,
        kind=kind,
        stage=stage,
        micro_batch=micro_batch,
        lane_start=lane_start,
        rank_of_lane=np.arange(len(lane_start) - 1, dtype=np.int64),
    )


def safe_depths(shape: Shape, depths: Sequence[int]) -> NDArray[np.int64]:
    """Return depths that cannot deadlock.

    Stage s + 1 starts its first backward after w' of its own forwards; with r' replicas that takes (w' - 1) r' + 1
    micro-batches in a row, which every earlier stage must have let through before a backward of its own: w r > (w' - 1)
    r' for each of them.

    Args:
        shape: the pipeline.
        depths: the wanted depth of each stage over all of its replicas, shape (ranks,).

    Returns:
        The depth of one replica of each stage, at least 1, shape (ranks,).
    """
    replicas = shape.replica_counts
    local: list[int] = []
    through = -1
    for s, (depth, r) in enumerate(zip(depths, replicas, strict=True)):
        w = max(1, -(-depth // r))
        if shape.caps:
            w = min(w, max(1, shape.caps[s]))
        if s:
            w = min(w, (through - 1) // r + 1)
        through = min(through, w * r) if s else w * r
        local.append(w)
    return np.array(local, dtype=np.int64)


def downstream(shape: Shape, stage: int) -> int:
    """Return the number of ranks from a stage to the end of the pipeline.

    Args:
        shape: the pipeline.
        stage: the stage.
    """
    return sum(shape.replicas[stage:]) if shape.replicas else shape.ranks - stage


@njit(cache=True)
def _lay_out(m, replicas, depths):  # type: ignore[no-untyped-def]
    lanes = replicas.sum()
    lane_start = np.zeros(lanes + 1, dtype=np.int64)
    kind = np.empty(2 * m * len(replicas), dtype=np.int8)
    stage = np.empty(2 * m * len(replicas), dtype=np.int32)
    micro_batch = np.empty(2 * m * len(replicas), dtype=np.int32)
    n = 0
    lane = 0
    for s in range(len(replicas)):
        r = replicas[s]
        for k in range(r):
            forward = k
            for _ in range(depths[s]):
                if forward < m:
                    kind[n], stage[n], micro_batch[n] = 0, s, forward
                    n += 1
                    forward += r
            for backward in range(k, m, r):
                kind[n], stage[n], micro_batch[n] = 1, s, backward
                n += 1
                if forward < m:
                    kind[n], stage[n], micro_batch[n] = 0, s, forward
                    n += 1
                    forward += r
            lane += 1
            lane_start[lane] = n
    return kind, stage, micro_batch, lane_start
