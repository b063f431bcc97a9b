"""DualPipeV (DeepSeek-AI; DualPipe cut in half): a V of 2 p stages in which a forward is paired with a backward.

Once it is filled, every rank alternates (F of its first stage, B of its second) and (F of its second, B of its first).
On accelerators the communication of one half of a pair hides behind the computing of the other; here a pair is its
forward and then its backward, F&B = F + B. Weight gradients are split off only while the pipeline fills and drains.

The authors count a pair as one operation, whose results come at its end; then the bubble for F = I is
(p - 1)(F&B + B - 3 W) with B = I + W. Here the forward's result leaves before the backward, which saves (p - 1) F of
it: the step is 2 m (F + B) + (p - 1)(2 I - W) for F = I. A rank keeps 2 p + 1 stages' activations. m >= 2 p.
"""

from __future__ import annotations

from collections import Counter, deque

from offcut.pipeline.program import B, F, I, Op, Program, W
from offcut.pipeline.schedules.base import Schedule, Shape, v_place
from offcut.pipeline.schedules.replicated import Lanes, copies, micro_batches_per_copy
from offcut.pipeline.schedules.zero_bubble_v import refuses_v


def _lane(p: int, m: int, rank: int) -> list[Op]:
    stages = (rank, 2 * p - 1 - rank)
    ops: list[Op] = []
    done: Counter[tuple[bool, int]] = Counter()
    waiting: deque[Op] = deque()

    def add(*operations: tuple[int, int]) -> None:
        for kind, chunk in operations:
            i = done[kind == F, chunk]
            done[kind == F, chunk] += 1
            ops.append((kind, stages[chunk], i))
            if kind == I:
                waiting.append((W, stages[chunk], i))

    def add_weight_gradient() -> None:
        if waiting:
            ops.append(waiting.popleft())

    later = p - 1 - rank
    for _ in range(2 * later):
        add((F, 0))
    for _ in range(rank + 1):
        add((F, 0), (F, 1))
    for _ in range(later):
        add((I, 1))
        add_weight_gradient()
        add((F, 1))
    for _ in range(m - 2 * p + rank + 1):
        add((F, 0), (B, 1), (F, 1), (B, 0))
    for _ in range(later):
        add((B, 1), (F, 1), (B, 0))
    # The second half of the last backwards is split; the weight gradients fill the end.
    for k in range(2 * (rank + 1)):
        add((B if k <= rank else I, 1 - k % 2))
    for _ in range(later):
        add_weight_gradient()
        add((I, 0))
    while waiting:
        add_weight_gradient()
    return ops


def _lanes(p: int, m: int) -> Lanes:
    return [_lane(p, m, rank) for rank in range(p)]


def _program(shape: Shape) -> Program:
    return copies(shape, _lanes, stages=2 * shape.ranks)


def _refuses(shape: Shape) -> str:
    if reason := refuses_v(shape):
        return reason
    if min(micro_batches_per_copy(shape)) < 2 * shape.ranks:
        return f"each copy needs at least as many micro-batches as stages, {2 * shape.ranks}"
    return ""


DUAL_PIPE_V = Schedule(
    name="dualpipe-v",
    source="DualPipe, github.com/deepseek-ai/DualPipe; DeepSeek-V3, arXiv 2412.19437, section 3.2.1",
    program=_program,
    in_flight=lambda k, p, m: min(m, p // 2 + 1),
    refuses=_refuses,
    place_of=v_place,
    chunks=2,
    splits_backward=True,
)
