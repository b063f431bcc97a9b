"""TeraPipe (Li et al., ICML 2021): a micro-batch is a slice of the tokens of a few sequences.

In a causal language model a slice needs the keys and values of the slices before it only, so the stages work on
consecutive slices at the same time. Forwards go through the slices in order, backwards in the reverse order, because a
slice's keys and values get gradients from all later ones: the gradient is that of the unsliced sequences. On p uniform
stages a pass over slices that take t_1, ..., t_K takes sum t_i + (p - 1) max t_i. All slices are in flight at once.
`planner.token_slices` chooses the slices, and `MicroBatchScale` tells the simulator how long each takes.
"""

from __future__ import annotations

from offcut.pipeline.program import B, F, Program, from_lanes
from offcut.pipeline.schedules.base import Schedule, Shape


def _program(shape: Shape) -> Program:
    m = shape.micro_batches
    lanes = [[(F, s, i) for i in range(m)] + [(B, s, i) for i in reversed(range(m))] for s in range(shape.ranks)]
    return from_lanes(lanes, stages=shape.ranks, micro_batches=m)


def _refuses(shape: Shape) -> str:
    return "" if max(shape.replica_counts) == 1 else "the slices of a sequence pass through one pipeline, not replicas"


TERAPIPE = Schedule(
    name="terapipe",
    source="TeraPipe, ICML 2021, section 3",
    program=_program,
    in_flight=lambda k, p, m: m,
    refuses=_refuses,
)
