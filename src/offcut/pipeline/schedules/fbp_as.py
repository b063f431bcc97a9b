"""FBP-AS (BaPipe): forward and backward of different micro-batches share an accelerator at the same time.

How they share it the paper's abstract does not say, so `sharing` is a stated parameter:

* `static`: the device is divided in proportion to the work, so that a forward and a backward each take F + B. Step
  (M + 2 N - 1)(F + B); rank i of 1..N keeps 2 (N - i + 1) micro-batches, which is BaPipe's figure.
* `conserving`: a device whose other half idles works at full speed. Step (M + N - 1)(F + B), BaPipe's formula, with
  the doubled warm-up that it implies.
"""

from __future__ import annotations

from offcut.pipeline.program import B, F, Op, Program, from_lanes
from offcut.pipeline.schedules.base import Schedule, Shape
from offcut.pipeline.schedules.linear import laid_out


def _static(shape: Shape) -> Program:
    m, p = shape.micro_batches, shape.ranks
    lanes: list[list[Op]] = []
    for s in range(p):
        lanes.append([(F, s, i) for i in range(m)])
        lanes.append([(B, s, i) for i in range(m)])
    return from_lanes(lanes, stages=p, micro_batches=m, rank_of_lane=[k // 2 for k in range(2 * p)])


def _conserving(shape: Shape) -> list[int]:
    return [2 * (shape.ranks - s) for s in range(shape.ranks)]


def _refuses(shape: Shape) -> str:
    return "" if max(shape.replica_counts) == 1 else "it is described for stages without replicas"


FBP_AS_STATIC = Schedule(
    name="fbp-as-static",
    source="BaPipe, arXiv 2012.12544; sharing=static",
    program=_static,
    in_flight=lambda k, p, m: min(m, 2 * k),
    refuses=_refuses,
    sends="streaming",
)

FBP_AS = Schedule(
    name="fbp-as",
    source="BaPipe, arXiv 2012.12544; sharing=conserving",
    program=laid_out(_conserving),
    depths=_conserving,
    in_flight=lambda k, p, m: min(m, 2 * k),
    refuses=_refuses,
    sends="streaming",
)
