"""PipeDream (Narayanan et al., SOSP 2019): 1F1B without a flush; every micro-batch updates the weights.

Rank s stashes p - s versions of its weights, so that a micro-batch's backward sees the weights of its forward. In the
steady state one micro-batch leaves per max_s (F_s + B_s) / r_s. The simulated step is a finite stream; its period is
what the schedule is about. Gradients are up to p - s updates old: never chosen unless asked for.
"""

from __future__ import annotations

from offcut.pipeline.schedules.base import Schedule
from offcut.pipeline.schedules.linear import laid_out
from offcut.pipeline.schedules.one_f_one_b import one_f_one_b_depths, one_f_one_b_in_flight

PIPEDREAM = Schedule(
    name="pipedream",
    source="PipeDream, SOSP 2019, section 3",
    program=laid_out(one_f_one_b_depths),
    depths=one_f_one_b_depths,
    in_flight=one_f_one_b_in_flight,
    weight_versions=lambda p, s: p - s,
    synchronous=False,
)
