"""Interleaved 1F1B (Narayanan et al., SC 2021, Megatron-LM): a rank holds v stages that are p apart.

Stage c p + q lives on rank q. Step m (F + B) + (p - 1)(F + B) / v for m > p, a multiple of p; rank 0 keeps
min(m, p (1 + (p - 1) / (p v))) micro-batches' worth of its whole share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from offcut.pipeline.program import B, F, Program
from offcut.pipeline.schedules.base import Schedule, Shape
from offcut.pipeline.schedules.replicated import Lanes, copies, micro_batches_per_copy


def _lanes(v: int, p: int, m: int) -> Lanes:
    total = m * v

    def forward_stage(k: int, rank: int) -> int:
        return k % (p * v) // p * p + rank

    def backward_stage(k: int, rank: int) -> int:
        return (v - 1 - k % (p * v) // p) * p + rank

    def micro_batch(k: int) -> int:
        return k // (p * v) * p + k % p

    lanes: Lanes = []
    for rank in range(p):
        warm = total if m == p else min(total, (p - rank - 1) * 2 + (v - 1) * p)
        ops = [(F, forward_stage(k, rank), micro_batch(k)) for k in range(warm)]
        for k in range(warm, total):
            ops.append((F, forward_stage(k, rank), micro_batch(k)))
            ops.append((B, backward_stage(k - warm, rank), micro_batch(k - warm)))
        ops += [(B, backward_stage(k, rank), micro_batch(k)) for k in range(total - warm, total)]
        lanes.append(ops)
    return lanes


@lru_cache(maxsize=8)
def _lanes_of(v: int) -> Callable[[int, int], Lanes]:
    # One function object per v, so that the cache of laid-out copies finds it again.
    return partial(_lanes, v)


def _program(shape: Shape) -> Program:
    return copies(shape, _lanes_of(shape.chunks), stages=shape.ranks * shape.chunks)


def _refuses(shape: Shape) -> str:
    if not shape.even:
        return "its stages would have unequal numbers of replicas"
    if shape.ranks < 2:
        return "it needs at least two ranks"
    if any(n % shape.ranks for n in micro_batches_per_copy(shape)):
        return f"the micro-batches of each copy must be a multiple of its {shape.ranks} ranks"
    return ""


INTERLEAVED = Schedule(
    name="interleaved",
    source="Megatron-LM, SC 2021, section 2.2.2",
    program=_program,
    in_flight=lambda k, p, m: min(m, p + (p - 1) // 2 + 1),
    refuses=_refuses,
    chunks=2,
)
