"""PipeDream-2BW (Narayanan et al., ICML 2021): 1F1B without a flush, gradients coalesced over m >= p micro-batches.

Two versions of the weights at any depth; every update uses gradients that are one update old. The rate is
PipeDream's. Never chosen unless asked for.
"""

from __future__ import annotations

from offcut.pipeline.schedules.base import Schedule, Shape
from offcut.pipeline.schedules.linear import laid_out
from offcut.pipeline.schedules.one_f_one_b import one_f_one_b_depths, one_f_one_b_in_flight


def _refuses(shape: Shape) -> str:
    if shape.micro_batches < shape.ranks:
        return f"it needs at least as many micro-batches as stages ({shape.micro_batches} < {shape.ranks})"
    return ""


PIPEDREAM_2BW = Schedule(
    name="pipedream-2bw",
    source="PipeDream-2BW, ICML 2021",
    program=laid_out(one_f_one_b_depths),
    depths=one_f_one_b_depths,
    in_flight=one_f_one_b_in_flight,
    refuses=_refuses,
    weight_versions=lambda p, s: 2,
    synchronous=False,
)
