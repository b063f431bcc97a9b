"""Chimera (Li and Hoefler, SC 2021): two pipelines in opposite directions over the same ranks.

Stage s lives on rank s (even micro-batches) and on rank p - 1 - s (odd ones): twice the weights, and half the bubble.
For m = p: F = B: p - 2 idle slots; B = 2 F: (p - 2) 2 F. With F = B that holds for any m, the bubble being
(p - 2) / (2 m + p - 2); with B = 2 F and m > p it does not (the paper doubles forwards there; this does not). The
program is laid out by list scheduling, backward first, then lower micro-batches, never more than p micro-batches in
flight on a rank, which reproduces the paper's figure.
"""

from __future__ import annotations

from offcut.pipeline.program import B, F, Op, Program
from offcut.pipeline.schedules.base import Schedule, Shape
from offcut.pipeline.schedules.replicated import Lanes, copies, micro_batches_per_copy


def _rank(stage: int, direction: int, p: int) -> int:
    return p - 1 - stage if direction else stage


def _lanes(p: int, m: int) -> Lanes:
    """Lay out m micro-batches, half of them down, half up, as if every operation took one slot."""
    end: dict[tuple[int, int, int], int] = {}
    clock = [0] * p
    lanes: Lanes = [[] for _ in range(p)]
    # Per rank the next micro-batch of each (kind, stage, direction): each kind is done in the order of micro-batches.
    in_flight = [0] * p
    following: list[dict[tuple[int, int, int], int]] = [{} for _ in range(p)]
    for direction in (0, 1):
        for stage in range(p):
            for kind in (F, B):
                following[_rank(stage, direction, p)][kind, stage, direction] = 0

    def ready(kind: int, stage: int, i: int) -> int | None:
        if kind == F:
            needs = [(F, stage - 1, i)] if stage else []
        else:
            needs = [(F, stage, i)] + ([(B, stage + 1, i)] if stage < p - 1 else [])
        if any(need not in end for need in needs):
            return None
        return max((end[need] for need in needs), default=0)

    for _ in range(2 * m * p):
        best: tuple[tuple[int, int, int, int], int, Op, tuple[int, int, int]] | None = None
        for rank in range(p):
            for key, k in following[rank].items():
                kind, stage, direction = key
                if k >= m // 2 or (kind == F and in_flight[rank] >= p):
                    continue
                i = 2 * k + direction
                at = ready(kind, stage, i)
                if at is None:
                    continue
                order = (max(clock[rank], at), 0 if kind == B else 1, k, direction)
                if best is None or order < best[0]:
                    best = (order, rank, (kind, stage, i), key)
        if best is None:
            raise RuntimeError("the layout of Chimera's unit ran dry")
        order, rank, op, key = best
        clock[rank] = end[op] = order[0] + 1
        lanes[rank].append(op)
        in_flight[rank] += 1 if op[0] == F else -1
        following[rank][key] += 1
    return lanes


def _program(shape: Shape) -> Program:
    return copies(shape, _lanes, stages=shape.ranks)


def _refuses(shape: Shape) -> str:
    if not shape.even:
        return "its stages would have unequal numbers of replicas"
    if shape.ranks % 2 or shape.ranks > 32:
        return "it needs an even number of stages, 32 at most"
    if any(n % shape.ranks or not n for n in micro_batches_per_copy(shape)):
        return f"the micro-batches of each copy must be a multiple of its {shape.ranks} stages"
    return ""


CHIMERA = Schedule(
    name="chimera",
    source="Chimera, SC 2021, section 3",
    program=_program,
    in_flight=lambda k, p, m: min(m, p),
    refuses=_refuses,
    weight_copies=2,
)
