"""ZB-H1 (Qi et al., ICLR 2024): the backward is split, and weight gradients fill what would be bubbles.

I (the input gradient) goes to the previous stage at once, W (the weight gradient) waits: rank s delays up to s of
them, so no rank keeps more than p micro-batches. With F = I = W the step is 3 m F + (p - 1)(F + I - W).
"""

from __future__ import annotations

from collections import deque

from offcut.pipeline.program import F, I, Op, Program, W
from offcut.pipeline.schedules.base import Schedule, Shape, pipeline_only
from offcut.pipeline.schedules.replicated import Lanes, copies


def _lanes(p: int, m: int) -> Lanes:
    lanes: Lanes = []
    for s in range(p):
        warm = min(m, p - s)
        ops: list[Op] = [(F, s, i) for i in range(warm)]
        forward = warm
        pending: deque[int] = deque()
        for i in range(m):
            ops.append((I, s, i))
            pending.append(i)
            draining = forward >= m and i < m - 1 and len(pending) == s
            if len(pending) > s or (draining and pending):
                ops.append((W, s, pending.popleft()))
            if forward < m:
                ops.append((F, s, forward))
                forward += 1
        ops += [(W, s, i) for i in pending]
        lanes.append(ops)
    return lanes


def _program(shape: Shape) -> Program:
    return copies(shape, _lanes, stages=shape.ranks)


ZERO_BUBBLE_H1 = Schedule(
    name="zb-h1",
    source="Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.1",
    program=_program,
    in_flight=lambda k, p, m: min(m, p),
    refuses=pipeline_only,
    splits_backward=True,
)
