"""Chimera (Li and Hoefler, SC 2021): f pairs of pipelines in opposite directions over the same p ranks.

Of pair i the down pipeline has stage s on rank (s + i p / f) mod p, and the up pipeline has stage p - 1 - s there. So
every stage lives on 2 f ranks: 2 f times the weights, and a stage is lost only if all of these ranks die. Micro-batch i
goes through pipeline i mod 2 f.

For F = B the bubble is p / f - 2 slots for any m that is a multiple of p: (p / f - 2) / (2 m + p / f - 2) of the step.
For one pair, m = p and B = 2 F it is (p - 2) 2 F; for larger m the paper doubles forwards there, this program does not.
The program is laid out by list scheduling in slots of F = B, backward first, then lower micro-batches, with at most p
micro-batches in flight on a rank, which reproduces the tables of the authors' generator.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from offcut.pipeline.program import B, F, Op, Program
from offcut.pipeline.schedules.base import Schedule, Shape
from offcut.pipeline.schedules.replicated import Lanes, copies, micro_batches_per_copy

#: More ranks than this are refused: laying out the program takes a time of the order of p squared times m.
_MOST_RANKS = 32


def rank_of_stage(stage: int, pipeline: int, *, ranks: int, pairs: int) -> int:
    """Return the rank that has a stage in one of the 2 f pipelines.

    Args:
        stage: the stage.
        pipeline: 2 i is the down pipeline of pair i, 2 i + 1 its up pipeline.
        ranks: the number of ranks, p.
        pairs: the number of pairs, f.
    """
    pair, up = divmod(pipeline, 2)
    return ((ranks - 1 - stage if up else stage) + pair * ranks // pairs) % ranks


def _lanes(pairs: int, p: int, m: int) -> Lanes:
    """Lay out m micro-batches over 2 f pipelines, as if every operation took one slot."""
    pipelines = 2 * pairs
    end: dict[tuple[int, int, int], int] = {}
    clock = [0] * p
    lanes: Lanes = [[] for _ in range(p)]
    in_flight = [0] * p
    # Per rank the next micro-batch of each (kind, stage, pipeline): each is done in the order of micro-batches.
    following: list[dict[tuple[int, int, int], int]] = [{} for _ in range(p)]
    for pipeline in range(pipelines):
        for stage in range(p):
            for kind in (F, B):
                following[rank_of_stage(stage, pipeline, ranks=p, pairs=pairs)][kind, stage, pipeline] = 0

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
                kind, stage, pipeline = key
                if k >= m // pipelines or (kind == F and in_flight[rank] >= p):
                    continue
                i = pipelines * k + pipeline
                at = ready(kind, stage, i)
                if at is None:
                    continue
                order = (max(clock[rank], at), 0 if kind == B else 1, k, pipeline)
                if best is None or order < best[0]:
                    best = (order, rank, (kind, stage, i), key)
        if best is None:
            raise RuntimeError("Chimera's layout has operations left that all wait for each other")
        order, rank, op, key = best
        clock[rank] = end[op] = order[0] + 1
        lanes[rank].append(op)
        in_flight[rank] += 1 if op[0] == F else -1
        following[rank][key] += 1
    return lanes


@lru_cache(maxsize=8)
def _lanes_of(pairs: int) -> Callable[[int, int], Lanes]:
    # One function object per number of pairs, so that the cache of laid-out copies finds it again.
    return partial(_lanes, pairs)


def chimera(pairs: int) -> Schedule:
    """Return Chimera with a number of pairs of pipelines.

    Args:
        pairs: the number of pairs, f; every rank holds 2 f stages.

    Returns:
        The schedule, named `chimera` for one pair and `chimera-f` for f pairs.
    """

    def program(shape: Shape) -> Program:
        return copies(shape, _lanes_of(pairs), stages=shape.ranks)

    def refuses(shape: Shape) -> str:
        if not shape.even:
            return "its stages would have unequal numbers of replicas"
        if shape.ranks % (2 * pairs) or shape.ranks > _MOST_RANKS:
            number = "an even number of stages" if pairs == 1 else f"a multiple of {2 * pairs} stages"
            return f"it needs {number}, {_MOST_RANKS} at most"
        if any(n % shape.ranks or not n for n in micro_batches_per_copy(shape)):
            return f"the micro-batches of each copy must be a multiple of its {shape.ranks} stages"
        return ""

    return Schedule(
        name="chimera" if pairs == 1 else f"chimera-{pairs}",
        source=f"Chimera, SC 2021, section 3; f = {pairs}",
        program=program,
        in_flight=lambda k, p, m: min(m, p),
        refuses=refuses,
        weight_copies=2 * pairs,
    )


CHIMERA = chimera(1)
CHIMERA_2 = chimera(2)
CHIMERA_4 = chimera(4)
