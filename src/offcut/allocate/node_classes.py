"""The mixed-integer model over node classes: how many nodes of each class every job has.

A class has a type, a switch, an end of its window and a holder. The horizon is cut at the ends of classes; a job's rate
in each interval follows from the nodes that it still has then. The costs are:
- a resize now: as the problem's cost model says;
- a node that leaves later: the job stalls for its `shrink_cost_s` when that happens, in both cost models;
- dropping nodes and gaining others at once (a migration): forbidden, or `migration_cost_s` at the current rate;
- each switch beyond the first: `switch_price`.
"""

from __future__ import annotations

from itertools import pairwise

from offcut.allocate.exact.pieces import rate_pieces
from offcut.allocate.milp_job import JobInModel
from offcut.allocate.milp_model import CONSTANT, Expression, Model, plus, times, total
from offcut.allocate.objective import allowed_sizes, rate_now, terms
from offcut.errors import AllocationError
from offcut.model import AllocationProblem, JobRequest, NodeClass, ScalingCurve

#: How a job's size changes now.
STAY, GROW, SHRINK = range(3)


def add_jobs(model: Model, problem: AllocationProblem) -> list[JobInModel]:
    """Add every job of a problem with classes, and the node count of each class as a limit.

    Args:
        model: the model to add to.
        problem: a problem with classes.

    Returns:
        The variables of each job, in the problem's order.

    Raises:
        AllocationError: a job cannot be modelled, or may not wait and has no size that fits.
    """
    for job in problem.jobs:
        if job.mix_types and problem.objective == "deadline":
            raise AllocationError(
                f"job '{job.id}': the objective deadline cannot count a rate made of several types.",
                next_step="Set mix_types to false, or choose another objective.",
            )
    ends = sorted({c.until_s for c in problem.classes if c.until_s is not None and c.until_s < problem.horizon_s})
    times_s = [0.0, *ends, problem.horizon_s]
    parts = [_JobBuilder(model, problem, job, times_s).build() for job in problem.jobs]
    for one in problem.classes:
        model.at_most({part.classes[one.id]: 1.0 for part in parts}, one.nodes)
    return parts


class _JobBuilder:
    """Builds the variables and constraints of one job."""

    def __init__(self, model: Model, problem: AllocationProblem, job: JobRequest, times_s: list[float]) -> None:
        self.model, self.problem, self.job, self.times_s = model, problem, job, times_s
        self.terms = terms(problem.objective, job)
        self.curves = dict(job.type_curves)
        self.types = sorted({c.type for c in problem.classes})
        self.nodes_of_class = {c.id: model.add_variable(0, self._most(c)) for c in problem.classes}
        self.size: Expression = dict.fromkeys(self.nodes_of_class.values(), 1.0)
        self.modes = self._sizes(self.size)

    def _most(self, one: NodeClass) -> int:
        """Return how many nodes of a class the job may have; 0 if it would start there and they end too soon."""
        starts_too_late = self.job.current == 0 and one.until_s is not None and one.until_s < self.job.min_run_s
        return 0 if starts_too_late else one.nodes

    def _sizes(self, size: Expression) -> list[Expression]:
        """Constrain `size` to the allowed sizes.

        Returns, for stay, grow and shrink, an expression that is 1 if chosen.
        """
        model, current = self.model, self.job.current
        modes: list[Expression] = [{}, {}, {}]
        chosen: Expression = {}
        equals: Expression = {}
        for low, high in _runs(self.job, self.problem.nodes):
            for mode, u, v in (
                (SHRINK, low, min(high, current - 1)),
                (STAY, max(low, current), min(high, current)),
                (GROW, max(low, current + 1), high),
            ):
                if u > v:
                    continue
                flag = model.add_binary()
                modes[mode][flag] = 1.0
                chosen[flag] = 1.0
                equals[flag] = -float(u)
                if v > u:
                    more = model.add_variable(0, v - u)
                    model.at_most({more: 1.0, flag: float(u - v)}, 0)
                    equals[more] = -1.0
        if not chosen:
            raise AllocationError(
                f"job '{self.job.id}' may not wait, but its smallest size does not fit on {self.problem.nodes} nodes.",
                next_step="Allow it to wait, unlock it, or give it a smaller size.",
            )
        model.equal(chosen, 1)
        model.equal(plus(size, equals), 0)
        return modes

    def _rate(self, node_type: str, mode: Expression, *, only_allowed: bool) -> tuple[Expression, Expression]:
        """Choose a point of the type's curve if `mode` is 1.

        Returns the nodes used and the counted rate, both 0 otherwise.
        """
        model, job = self.model, self.job
        curve = self.curves.get(node_type, job.curve)
        smallest, largest, sizes = 1, job.max_nodes, None
        if only_allowed:
            smallest, sizes = job.min_nodes, job.sizes
        elif job.locked:
            largest = curve.max_nodes
        pieces = rate_pieces(curve, smallest, largest, sizes, self.terms.cap)
        if job.locked and job.current > curve.max_nodes:  # such a job stays, at the last rate that is known
            pieces.append((curve.max_nodes + 1, job.current, 0.0, self.terms.counted(curve.rate[-1])))
        used: Expression = {}
        rate: Expression = {}
        flags: Expression = {}
        for low, high, slope, base in pieces:
            flag = model.add_binary()
            flags[flag] = 1.0
            used[flag] = low
            rate[flag] = base + slope * low
            if high > low:
                more = model.add_variable(0, high - low)
                model.at_most({more: 1.0, flag: float(low - high)}, 0)
                used[more] = 1.0
                rate[more] = slope
        model.at_most(plus(flags, times(-1.0, mode)), 0)
        return used, rate

    def _uses_type(self) -> dict[str, int]:
        """Restrict the job to nodes of one type."""
        flags = {t: self.model.add_binary() for t in self.types}
        self.model.equal(dict.fromkeys(flags.values(), 1.0), 1)
        for one in self.problem.classes:
            self.model.at_most({self.nodes_of_class[one.id]: 1.0, flags[one.type]: -float(one.nodes)}, 0)
        return flags

    def _worth(self) -> Expression:
        """Return the value of the rates in all intervals, less the costs of resizes and of nodes that end."""
        problem, job, model = self.problem, self.job, self.model
        if not job.mix_types:
            self._uses_type()
        value: list[Expression] = []
        costs_s = {STAY: 0.0, GROW: job.grow_cost_s, SHRINK: job.shrink_cost_s}
        for i, (begin_s, end_s) in enumerate(pairwise(self.times_s)):
            alive = [c for c in problem.classes if c.until_s is None or c.until_s > begin_s]
            total_rate: list[Expression] = []
            for t in self.types:
                here = {self.nodes_of_class[c.id]: 1.0 for c in alive if c.type == t}
                spent: list[Expression] = []
                for mode, happens in enumerate(self.modes):
                    if not happens:
                        continue
                    only_allowed = not job.mix_types and not job.locked
                    used, rate = self._rate(t, happens, only_allowed=only_allowed)
                    spent.append(used)
                    total_rate.append(rate)
                    useful_s = end_s - begin_s
                    if problem.cost_model == "stall":
                        useful_s = max(0.0, end_s - max(begin_s, costs_s[mode]))
                    value.append(times(self.terms.weight * useful_s, rate))
                if i == 0:
                    model.equal(plus(*spent, times(-1.0, here)), 0)
                else:
                    model.at_most(plus(*spent, times(-1.0, here)), 0)
            if i > 0:
                value.append(self._leaving(begin_s, end_s, total(total_rate)))
        if problem.cost_model == "published":
            now = self.terms.weight * self.terms.counted(rate_now(job))
            value += [times(-cost_s * now, self.modes[mode]) for mode, cost_s in costs_s.items()]
        return total(value)

    def _leaving(self, begin_s: float, end_s: float, rate: Expression) -> Expression:
        """Return the (negative) cost of the stall when nodes of the job end at `begin_s`."""
        lost_s = min(self.job.shrink_cost_s, end_s - begin_s)
        ending = [c for c in self.problem.classes if c.until_s == begin_s]
        if lost_s == 0:
            return {}
        happens = self.model.add_binary()
        for one in ending:
            self.model.at_most({self.nodes_of_class[one.id]: 1.0, happens: -float(one.nodes)}, 0)
        curves = [self.job.curve, *self.curves.values()]
        highest = sum(self.terms.counted(max(curve.rate)) for curve in curves)
        most = self.terms.weight * lost_s * highest
        loss = self.model.add_variable(0, most, integer=False)
        self.model.at_least(
            plus({loss: 1.0, happens: -most, CONSTANT: most}, times(-self.terms.weight * lost_s, rate)), 0
        )
        return {loss: -1.0}

    def _migration(self) -> tuple[Expression, Expression]:
        """Forbid or charge a migration: dropping nodes and gaining others.

        Returns its value, and a flag that is 1 for it.
        """
        problem, job, model = self.problem, self.job, self.model
        own = {self.nodes_of_class[c.id]: 1.0 for c in problem.classes if c.held_by == job.id}
        others = {self.nodes_of_class[c.id]: 1.0 for c in problem.classes if c.held_by != job.id}
        if not own:
            return {}, {}
        gains = model.add_binary()
        model.at_most({**others, gains: -float(problem.nodes)}, 0)
        kept = plus(own, {gains: -float(job.current)})
        if job.migration_cost_s is None or job.locked:
            model.at_least(kept, 0)
            return {}, {}
        moves = model.add_binary()
        model.at_least(plus(kept, {moves: float(job.current)}), 0)
        price = self.terms.weight * job.migration_cost_s * self.terms.counted(rate_now(job))
        return {moves: -price}, {moves: 1.0}

    def _switches(self) -> Expression:
        """Return the (negative) cost of the switches beyond the first."""
        job, model = self.job, self.model
        switches = sorted({c.switch for c in self.problem.classes if c.switch})
        if job.switch_price == 0 or len(switches) < 2:
            return {}
        uses = {s: model.add_binary() for s in switches}
        for one in self.problem.classes:
            if one.switch:
                model.at_most({self.nodes_of_class[one.id]: 1.0, uses[one.switch]: -float(one.nodes)}, 0)
        beyond = model.add_variable(0, len(switches) - 1, integer=False)
        model.at_least({beyond: 1.0, CONSTANT: 1.0, **dict.fromkeys(uses.values(), -1.0)}, 0)
        return {beyond: -job.switch_price}

    def build(self) -> JobInModel:
        """Build the job and return the part that the rest of the model uses."""
        cost, moves = self._migration()
        value = plus(self._worth(), cost, self._switches())
        changed = plus({CONSTANT: 1.0}, times(-1.0, self.modes[STAY]))
        if moves:
            flag = self.model.add_binary()
            self.model.at_least(plus({flag: 1.0}, times(-1.0, changed)), 0)
            self.model.at_least(plus({flag: 1.0}, times(-1.0, moves)), 0)
            changed = {flag: 1.0}
        return JobInModel(self.size, value, changed, self.nodes_of_class)


def _runs(job: JobRequest, nodes: int) -> list[tuple[int, int]]:
    """Return the allowed sizes as runs of consecutive numbers, up to the last point of the longest curve."""
    curves: list[ScalingCurve] = [job.curve, *(curve for _, curve in job.type_curves)]
    furthest = max(curve.max_nodes for curve in curves)
    if job.mix_types:
        furthest = sum(curve.max_nodes for curve in curves)
    runs: list[tuple[int, int]] = []
    for n in allowed_sizes(job, nodes, furthest):
        if runs and n == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], n)
        else:
            runs.append((n, n))
    return runs
