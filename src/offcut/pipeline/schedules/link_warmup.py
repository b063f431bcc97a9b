"""1F1B-link, offcut's own schedule: the warm-up of 1F1B is as deep at each link as that link needs, and no deeper.

BaPipe's 1F1B-SO doubles the warm-up everywhere: too much where a link is fast, too little where one is slow. Stage s
must have enough micro-batches in flight that one leaves as often as the slowest stage takes one. With t_s = F_s + B_s,
c_s one transfer over the link behind stage s, r_s replicas and T = max t_s / r_s:

    K_{p-1} = r_{p-1},   K_s = K_{s+1} + max(1, ceil((t_s + t_{s+1} + 2 c_s) / T) - 1)

On uniform stages it attains (m + p - 1)(F + B) + 2 (p - 1) c for any c. `Shape.caps` lowers it where memory is short.
"""

from __future__ import annotations

import math

from offcut.pipeline.schedules.base import Schedule, Shape
from offcut.pipeline.schedules.linear import laid_out


def link_depths(shape: Shape) -> list[int]:
    """Return K_s for every stage, by the rule in this module's docstring.

    Args:
        shape: the pipeline, with `stage_s` and `hop_s`.

    Returns:
        The depth of each stage, shape (ranks,).
    """
    replicas = shape.replica_counts
    slowest = max(t / r for t, r in zip(shape.stage_s, replicas, strict=True))
    depths = [0] * shape.ranks
    depths[-1] = replicas[-1]
    for s in range(shape.ranks - 2, -1, -1):
        round_trip = shape.stage_s[s] + shape.stage_s[s + 1] + 2 * shape.hop_s[s]
        # The small number keeps a ratio that is whole but for rounding from costing one more micro-batch.
        ahead = math.ceil(round_trip / slowest - 1e-9) - 1 if slowest > 0 else 1
        depths[s] = depths[s + 1] + max(1, ahead)
    return depths


LINK_WARMUP = Schedule(
    name="1f1b-link",
    source="ours: per-link warm-up depth",
    program=laid_out(link_depths),
    depths=link_depths,
    # The depth depends on times; a plan that does not fit is capped to what does, so plan with 1F1B's.
    in_flight=lambda k, p, m: min(m, k),
)
