"""The allocation problem and its answer: counts only; which node goes where is a later, separate step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from offcut.model.curve import ScalingCurve

#: How a resize is charged.
#: `published`: weight * (horizon * rate(n) - cost * rate(current)), cost only where n != current (BFTrainer's MILP).
#: `stall`: a changed job is worth weight * rate(n) * max(0, horizon - cost): it makes no progress while it resizes.
CostModel = Literal["published", "stall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What the allocator knows of one job.

    n is 0 or one of `sizes` (where None: any of `min_nodes`..`max_nodes`). `current` is the number of nodes that the
    job still holds; it need not be an allowed size, for a reclaim can leave any count behind.
    """

    id: str
    min_nodes: int
    max_nodes: int
    curve: ScalingCurve
    sizes: tuple[int, ...] | None = None
    current: int = 0
    weight: float = 1.0
    grow_cost_s: float = 0.0
    shrink_cost_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationProblem:
    """How many of `nodes` nodes should each job have for the next `horizon_s` seconds?"""

    nodes: int
    horizon_s: float
    jobs: tuple[JobRequest, ...]
    cost_model: CostModel = "published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The answer: a node count for every job.

    `objective` is its value, `bound` an upper bound on any answer's value; `proven` says that the two agree to 1e-9
    relative. `solve_ms` is the decision alone, pieces built and kernels warm.
    """

    nodes: dict[str, int] = field(default_factory=dict)
    objective: float = 0.0
    bound: float = 0.0
    proven: bool = True
    solve_ms: float = 0.0
