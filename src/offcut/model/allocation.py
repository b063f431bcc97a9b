"""The allocation problem and its answer.

The core of a problem is node counts only; which node each job gets is a later, separate step. Node types, switches,
known ends of windows and moves to other nodes need more than counts: they are given by `classes`, and the nodes of one
class are interchangeable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from offcut.model.curve import ScalingCurve

#: How a resize is charged.
#: `published`: weight * (horizon * rate(n) - cost * rate(current)), cost only where n != current (BFTrainer's MILP).
#: `stall`: a changed job is worth weight * rate(n) * max(0, horizon - cost): it makes no progress while it resizes.
CostModel = Literal["published", "stall"]

#: What the allocation maximises.
#: `weighted`: weight * samples.
#: `samples`: samples, weights ignored.
#: `speedup`: speed-up over one node, weights ignored.
#: `max_min`: the smallest speed-up / weight, then the sum of them.
#: `priority`: `weighted`, one priority class after the other, higher classes first.
#: `deadline`: weight * how far the job gets towards the rate that meets its deadline.
Objective = Literal["weighted", "samples", "speedup", "max_min", "priority", "deadline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """One job as the allocator sees it.

    n is 0 or one of `sizes` (where None: any of `min_nodes`..`max_nodes`), and at most the curve's last point.
    `current` is the number of nodes that the job still holds. It need not be an allowed size, because a reclaim can
    leave any count.
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
    #: Only for the objective `priority`: higher classes come first.
    priority: int = 0
    #: The group whose quota this job counts against.
    group: str | None = None
    #: The job stays at `current`, even if that is not an allowed size.
    locked: bool = False
    #: True if the job may have no node at all.
    may_wait: bool = True
    #: A running job may not be stopped before it has run for `min_run_s`; it has run for `ran_s` so far. A job that
    #: does not run may not start on nodes whose window ends before `min_run_s`.
    min_run_s: float = 0.0
    ran_s: float = 0.0
    #: Only for the objective `deadline`: samples to go and seconds left for them.
    samples_left: float | None = None
    deadline_s: float | None = None
    #: The curve on each node type, where that differs from `curve`; a type that is not named uses `curve`.
    type_curves: tuple[tuple[str, ScalingCurve], ...] = ()
    #: True if nodes of several types may work together (their rates add up); otherwise all nodes are of one type.
    mix_types: bool = False
    #: What each switch beyond the first costs, in units of the objective.
    switch_price: float = 0.0
    #: The cost of dropping nodes and gaining others at once, in seconds at the current rate; None: never do that.
    migration_cost_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaGroup:
    """Jobs that share a quota.

    `max_nodes` is an upper limit; None: no limit. `share`: the group is entitled to `share` / (sum of all shares) of
    the nodes, and gets at least as many of those as its jobs can use; None: no entitlement.
    """

    id: str
    max_nodes: int | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClass:
    """`nodes` interchangeable nodes: one type, one switch, one known end of window, one present holder."""

    id: str
    nodes: int
    type: str = ""
    switch: str = ""
    #: Seconds from now at which these nodes are expected to be reclaimed; None: not within the horizon.
    until_s: float | None = None
    #: The job that holds these nodes now; None: they are free.
    held_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationProblem:
    """The question how many of `nodes` nodes each job should have for the next `horizon_s` seconds."""

    nodes: int
    horizon_s: float
    jobs: tuple[JobRequest, ...]
    cost_model: CostModel = "published"
    objective: Objective = "weighted"
    groups: tuple[QuotaGroup, ...] = ()
    #: The largest number of jobs that may change their size; None: any number.
    max_resizes: int | None = None
    #: Empty, or classes whose nodes add up to `nodes`, and for each job those that it holds to its `current`.
    classes: tuple[NodeClass, ...] = ()

    @property
    def needs_milp(self) -> bool:
        """True if counts, weights, sizes, locks and quotas cannot express the problem."""
        return bool(self.classes) or self.max_resizes is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The answer: a node count for every job.

    `objective` is its value, `bound` an upper bound on any answer's value; `proven` says that the two agree to 1e-9
    relative. `solve_ms` is the time of the decision alone, with pieces built and kernels warm. `price` is an upper
    bound on the value of one more node (the multiplier of the node count), in units of the objective. `classes` holds
    the number of nodes of each class per job, if the problem has classes. `standin` is the reason why a quick heuristic
    answered in place of the solver; empty if the solver answered.
    """

    nodes: dict[str, int] = field(default_factory=dict)
    objective: float = 0.0
    bound: float = 0.0
    proven: bool = True
    solve_ms: float = 0.0
    price: float = 0.0
    classes: dict[str, dict[str, int]] = field(default_factory=dict)
    standin: str = ""
