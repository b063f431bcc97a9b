"""ZB-V (Qi et al., ICLR 2024): two stages per rank in the shape of a V, with split backwards and an even memory.

The chain goes down the p ranks and back up: stage s is on rank s, or 2 p - 1 - s where s >= p. The first and the last
stage share a rank, so the first backward starts there as soon as its forward has come back, and every rank keeps 2 p
stages' activations, as much as rank 0 of 1F1B. With F = I = W per stage and m >= 2 p - 1 no rank idles between its
first and its last operation: the step is 2 m (F + I + W) + (p - 1) F.
"""

from __future__ import annotations

from collections import Counter

from offcut.pipeline.program import F, I, Op, Program, W
from offcut.pipeline.schedules.base import Schedule, Shape, v_place
from offcut.pipeline.schedules.replicated import Lanes, copies


def refuses_v(shape: Shape) -> str:
    """Refuse shapes that a V of two stages per rank cannot have. For `Schedule.refuses`.

    Args:
        shape: the shape.

    Returns:
        The reason; empty if the shape is accepted.
    """
    if not shape.even:
        return "its stages would have unequal numbers of replicas"
    return "" if shape.ranks >= 2 else "it needs at least two ranks"


def _lane(p: int, m: int, rank: int) -> list[Op]:
    """Lay out one rank; micro-batches beyond m belong to the pattern and are left out."""
    stages = (rank, 2 * p - 1 - rank)
    ops: list[Op] = []
    done: Counter[tuple[int, int]] = Counter()

    def add(*operations: tuple[int, int]) -> None:
        for kind, chunk in operations:
            i = done[kind, chunk]
            done[kind, chunk] += 1
            if i < m:
                ops.append((kind, stages[chunk], i))

    pattern = max(m, 2 * p - 1)
    for _ in range(2 * (p - rank) - 1):
        add((F, 0))
    for _ in range(rank):
        add((F, 1), (F, 0))
    for _ in range(p - rank):
        add((F, 1), (I, 1), (W, 1))
    while done[F, 1] < done[F, 0] or done[F, 0] < pattern:
        if done[F, 0] < pattern:
            add((F, 0))
        add((I, 0), (W, 0), (F, 1), (I, 1), (W, 1))
    # The last input gradients go first: the rank before this one waits for them, for weight gradients none does.
    for _ in range(rank):
        add((I, 0), (I, 1))
    for _ in range(p - rank):
        add((I, 0), (W, 0))
    for chunk in (1, 0):
        while done[W, chunk] < done[I, chunk]:
            add((W, chunk))
    return ops


def _lanes(p: int, m: int) -> Lanes:
    return [_lane(p, m, rank) for rank in range(p)]


def _program(shape: Shape) -> Program:
    return copies(shape, _lanes, stages=2 * shape.ranks)


ZERO_BUBBLE_V = Schedule(
    name="zb-v",
    source="Zero Bubble Pipeline Parallelism, ICLR 2024, section 6",
    program=_program,
    # Half of a rank's 2 p activations for each of its two stages.
    in_flight=lambda k, p, m: min(m, p // 2),
    refuses=refuses_v,
    place_of=v_place,
    chunks=2,
    splits_backward=True,
)
