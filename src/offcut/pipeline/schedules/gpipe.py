"""GPipe (Huang et al., NeurIPS 2019): all forwards, then all backwards.

Step (m + p - 1)(F + B); bubble (p - 1) / (m + p - 1); every rank keeps all m micro-batches.
"""

from __future__ import annotations

from offcut.pipeline.program import Program
from offcut.pipeline.schedules.base import Schedule, Shape
from offcut.pipeline.schedules.linear import linear_program


def _program(shape: Shape) -> Program:
    return linear_program(shape, [shape.micro_batches + shape.ranks * max(shape.replica_counts)] * shape.ranks)


GPIPE = Schedule(
    name="gpipe",
    source="GPipe, NeurIPS 2019, section 2.3",
    program=_program,
    in_flight=lambda k, p, m: m,
)
