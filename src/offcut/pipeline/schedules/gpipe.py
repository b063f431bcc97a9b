"""GPipe (Huang et al., NeurIPS 2019): all forwards, then all backwards.

Step (m + p - 1)(F + B); bubble (p - 1) / (m + p - 1); every rank keeps all m micro-batches.
"""

from __future__ import annotations

from offcut.pipeline.schedules.base import Schedule, Shape
from offcut.pipeline.schedules.linear import laid_out


def _depths(shape: Shape) -> list[int]:
    return [shape.micro_batches + max(shape.replica_counts)] * shape.ranks


GPIPE = Schedule(
    name="gpipe",
    source="GPipe, NeurIPS 2019, section 2.3",
    program=laid_out(_depths),
    depths=_depths,
    in_flight=lambda k, p, m: m,
)
