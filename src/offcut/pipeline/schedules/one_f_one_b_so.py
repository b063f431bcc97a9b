"""1F1B-SO (BaPipe): synchronous 1F1B with a doubled warm-up, which hides the transfers.

Rank s of 0..p-1 does 2 (p - s) - 1 forwards ahead. Step (M + N - 1)(F + B) + 2 (N - 1) SR while 2 SR <= F + B, at
almost twice 1F1B's activations.
"""

from __future__ import annotations

from offcut.pipeline.program import Program
from offcut.pipeline.schedules.base import Schedule, Shape
from offcut.pipeline.schedules.linear import downstream, linear_program


def _program(shape: Shape) -> Program:
    replicas = shape.replica_counts
    return linear_program(shape, [2 * downstream(shape, s) - replicas[s] for s in range(shape.ranks)])


ONE_F_ONE_B_SO = Schedule(
    name="1f1b-so",
    source="BaPipe, arXiv 2012.12544 (synchronous, overlapped)",
    program=_program,
    in_flight=lambda k, p, m: min(m, 2 * k - 1),
)
