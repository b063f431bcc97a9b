"""Copies of a whole pipeline, for schedules that are laid out for one copy at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from offcut.pipeline.program import Op, Program, from_lanes
from offcut.pipeline.schedules.base import Shape

#: Operations of each rank of one copy.
Lanes = list[list[Op]]


def copies(shape: Shape, lanes: Callable[[int, int], Lanes], *, stages: int) -> Program:
    """Lay out copies of a whole pipeline.

    Copy k of r takes the micro-batches k, k + r, ...; its rank q is rank q r + k of the program.

    Args:
        shape: the pipeline, with r replicas of every stage.
        lanes: lays out one copy of p ranks and m micro-batches.
        stages: the number of stages.

    Returns:
        The program.
    """
    return _copies(shape.ranks, shape.micro_batches, shape.replica_counts[0], lanes, stages)


@lru_cache(maxsize=4096)
def _copies(ranks: int, m: int, r: int, lanes: Callable[[int, int], Lanes], stages: int) -> Program:
    made: list[list[Op]] = [[] for _ in range(ranks * r)]
    for k in range(r):
        count = len(range(k, m, r))
        for q, ops in enumerate(_base(ranks, count, lanes) if count else []):
            made[q * r + k] = [(kind, stage, k + r * i) for kind, stage, i in ops]
    program = from_lanes(made, stages=stages, micro_batches=m)
    for array in (program.kind, program.stage, program.micro_batch, program.lane_start, program.rank_of_lane):
        array.flags.writeable = False
    return program


@lru_cache(maxsize=4096)
def _base(ranks: int, m: int, lanes: Callable[[int, int], Lanes]) -> Lanes:
    return lanes(ranks, m)


def micro_batches_per_copy(shape: Shape) -> tuple[int, ...]:
    """Return the number of micro-batches of each copy.

    Args:
        shape: the pipeline.
    """
    r = shape.replica_counts[0]
    return tuple(len(range(k, shape.micro_batches, r)) for k in range(r))
