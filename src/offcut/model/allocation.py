"""The allocation problem and its answer.

Its core is counts only; which node goes where is a later, separate step. What counts alone cannot express (node types,
switches, known ends of windows, moving to other nodes) is said with `classes`: nodes of one class are interchangeable.
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
    """What the allocator knows of one job.

    n is 0 or one of `sizes` (where None: any of `min_nodes`..`max_nodes`), and at most the curve's last point.
    `current` is the number of nodes that the job still holds; it need not be an allowed size, for a reclaim can leave
    any count behind.
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
    #: The job stays at `current`, whatever that is.
    locked: bool = False
    #: Whether the job may have no node at all.
    may_wait: bool = True
    #: A job that runs and has done so for less than `min_run_s` (`ran_s` so far) may not be stopped; one that does not
    #: run may not start on nodes whose window ends before `min_run_s`.
    min_run_s: float = 0.0
    ran_s: float = 0.0
    #: Only for the objective `deadline`: samples to go and seconds left for them.
    samples_left: float | None = None
    deadline_s: float | None = None
    #: The curve on each node type, where that differs from `curve`; a type that is not named uses `curve`.
    type_curves: tuple[tuple[str, ScalingCurve], ...] = ()
    #: Whether nodes of several types may work together (rates add); else the job keeps to one type.
    mix_types: bool = False
    #: What each switch beyond the first costs, in units of the objective.
    switch_price: float = 0.0
    #: Seconds at the current rate that it costs to give up nodes and gain others at once; None: never do that.
    migration_cost_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaGroup:
    """Jobs that share a quota.

    `share`: of every `share` / (sum of shares) of the nodes the group gets at least what its jobs can use of it.
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
    #: The job that holds these nodes now; None: free.
    held_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationProblem:
    """How many of `nodes` nodes should each job have for the next `horizon_s` seconds?"""

    nodes: int
    horizon_s: float
    jobs: tuple[JobRequest, ...]
    cost_model: CostModel = "published"
    objective: Objective = "weighted"
    groups: tuple[QuotaGroup, ...] = ()
    #: At most so many jobs change their size; None: any number.
    max_resizes: int | None = None
    #: Where given they add up to `nodes`, and those held by a job to its `current`.
    classes: tuple[NodeClass, ...] = ()

    @property
    def needs_milp(self) -> bool:
        """Whether the problem says more than counts, weights, sizes, locks and quotas can express."""
        return bool(self.classes) or self.max_resizes is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The answer: a node count for every job.

    `objective` is its value, `bound` an upper bound on any answer's value; `proven` says that the two agree to 1e-9
    relative. `solve_ms` is the decision alone, pieces built and kernels warm. `price` is what one node more would be
    worth at most (the multiplier of the node count), in units of the objective. `classes` says how many nodes of each
    class a job has, where the problem has classes. `standin` says why this is a quick answer in place of the solver's
    own; it is empty where it is the solver's.
    """

    nodes: dict[str, int] = field(default_factory=dict)
    objective: float = 0.0
    bound: float = 0.0
    proven: bool = True
    solve_ms: float = 0.0
    price: float = 0.0
    classes: dict[str, dict[str, int]] = field(default_factory=dict)
    standin: str = ""
