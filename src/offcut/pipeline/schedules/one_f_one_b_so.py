"""1F1B-SO (BaPipe): synchronous 1F1B with a doubled warm-up, which hides the transfers.

Rank s of 0..p-1 does 2 (p - s) - 1 forwards ahead. Step (M + N - 1)(F + B) + 2 (N - 1) SR while 2 SR <= F + B, at
almost twice 1F1B's activations.
"""

from __future__ import annotations

from offcut.pipeline.schedules.base import Schedule, Shape
from offcut.pipeline.schedules.linear import downstream, laid_out


def _depths(shape: Shape) -> list[int]:
    return [2 * downstream(shape, s) - r for s, r in enumerate(shape.replica_counts)]


ONE_F_ONE_B_SO = Schedule(
    name="1f1b-so",
    source="BaPipe, arXiv 2012.12544 (synchronous, overlapped)",
    program=laid_out(_depths),
    depths=_depths,
    in_flight=lambda k, p, m: min(m, 2 * k - 1),
)
