"""Counts under group quotas: one row of regrets per group, then the groups against each other.

A group with a cap may not have more nodes than that. A group with a share is entitled to `share / sum of shares` of the
nodes and gets at least what its jobs, left to themselves, would make the best use of within that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from offcut.allocate.exact.counts import Counts
from offcut.allocate.exact.pieces import Floats, Ints, Pieces, build
from offcut.allocate.exact.relaxation import Relaxation, best_at, relax
from offcut.allocate.exact.search import fill_rows, options_within, total_value, trace_back
from offcut.allocate.exact.tables import Rows
from offcut.errors import AllocationError
from offcut.model import AllocationProblem, QuotaGroup

# mypy: disallow-untyped-decorators=False
#: Entries of all groups' tables together; more would take gigabytes.
_MOST_ENTRIES = 200_000_000


def counts_within_quotas(pieces: Pieces, problem: AllocationProblem, free: Counts) -> Counts:
    """Find the best sizes within the quotas of a problem with groups. Ties go to groups in the order of their first
    jobs.

    Args:
        pieces: the values of the problem's jobs.
        problem: the node count, the groups, and the group of each job.
        free: the best sizes without quotas; they are the answer if they keep all quotas.

    Returns:
        The sizes of all jobs and their bound.

    Raises:
        AllocationError: jobs that may not wait need more than their quotas, or the tables would be too large.
    """
    members: dict[str | None, list[int]] = {}
    for j, job in enumerate(problem.jobs):
        members.setdefault(job.group, []).append(j)
    by_id = {group.id: group for group in problem.groups}
    shares = sum(group.share or 0.0 for group in problem.groups)
    used = {g: int(free.sizes[jobs].sum()) for g, jobs in members.items()}
    if not shares and all(g.max_nodes is None or used.get(g.id, 0) <= g.max_nodes for g in problem.groups):
        return free
    groups = [
        _GroupRegrets(pieces, jobs, nodes=problem.nodes, price=free.price, group=by_id.get(g or ""), shares=shares)
        for g, jobs in members.items()
    ]
    if all(group.least <= int(free.sizes[group.jobs].sum()) <= group.most for group in groups):
        return free
    sizes = np.zeros(len(pieces.current), np.int64)
    for group, nodes in zip(groups, _nodes_of_groups(groups, problem.nodes, free.price), strict=True):
        sizes[group.jobs] = group.sizes(nodes)
    objective = float(total_value(pieces, sizes))
    return Counts(sizes, objective, objective, True, free.price)


def entitlements(problem: AllocationProblem) -> dict[str, int]:
    """Compute the number of nodes that each group with a share is entitled to.

    Args:
        problem: a problem with groups.

    Returns:
        Nodes by the group's id: at least `share / sum of shares` of the nodes, as far as the group's jobs can use them.
    """
    shares = sum(group.share or 0.0 for group in problem.groups)
    pieces = build(problem)
    least = {}
    for group in problem.groups:
        jobs = [j for j, job in enumerate(problem.jobs) if job.group == group.id]
        if group.share is not None and jobs:
            regrets = _GroupRegrets(pieces, jobs, nodes=problem.nodes, price=0.0, group=group, shares=shares)
            least[group.id] = regrets.least
    return least


class _GroupRegrets:
    """A group's least total regret for each number of nodes that it may have, at a price of a node.

    `regret[n]` belongs to n nodes, from 0 to `most`; it is infinite where the group may not have n nodes. `least` is
    what the group's share gives it. `jobs` are the numbers of its jobs.
    """

    def __init__(
        self, pieces: Pieces, jobs: list[int], *, nodes: int, price: float, group: QuotaGroup | None, shares: float
    ) -> None:
        self.jobs = jobs
        self.most = nodes if group is None or group.max_nodes is None else min(nodes, group.max_nodes)
        own = pieces.subset(jobs)
        relaxation = Relaxation(*relax(nodes, *own))
        if relaxation.fewest > self.most:
            raise AllocationError(
                f"group '{group.id if group else ''}': its jobs that may not wait need {relaxation.fewest} nodes, "
                f"but its quota is {self.most}.",
                next_step="Raise max_nodes, or let a job wait.",
            )
        # The regrets of all groups must be at one price to be added up.
        nudged = own._replace(base=relaxation.nudged)
        relaxation = relaxation._replace(price=price)
        best_at(nudged, price, relaxation.best)
        self.tie = relaxation.tie
        self._sizes = np.empty(len(jobs), np.int64)
        self._options = options_within(nudged, relaxation, math.inf, self.most, self._sizes)
        self._rows = _filled(self._options)
        self.regret = np.full(self.most + 1, math.inf)
        self._fewest = self.most - self._options.left
        most_used = self._rows.upper[0]
        self.regret[self._fewest : self._fewest + most_used + 1] = self._rows.table[: most_used + 1]
        self.least = self._entitled(nodes, price, group.share / shares if group is not None and group.share else 0.0)
        self.regret[: self.least] = math.inf

    def _entitled(self, nodes: int, price: float, share: float) -> int:
        """Return the node count at which the jobs make the best use of what the group is entitled to."""
        entitled = min(self.most, int(nodes * share + 1e-9))
        if entitled < self._fewest:
            return 0
        # Regrets are against the price of a node; without it they are (minus) values again.
        lost = self.regret[: entitled + 1] - price * np.arange(entitled + 1)
        return int(np.flatnonzero(lost <= lost.min() + self.tie)[0])

    def sizes(self, nodes: int) -> Ints:
        """Return the sizes of the group's jobs when it has exactly `nodes`."""
        sizes = self._sizes.copy()
        target = self.regret[nodes] + self.tie
        trace_back(self._options, self._rows, 0, len(self._options.job), nodes - self._fewest, 0.0, target, sizes)
        return sizes


def _filled(options: Any) -> Rows:
    """Fill the rows of a group's jobs alone; all of the group's nodes are used."""
    jobs = len(options.job)
    upper = np.zeros(jobs + 1, np.int64)
    for q in range(jobs - 1, -1, -1):
        upper[q] = min(options.left, upper[q + 1] + options.last[options.start[q + 1] - 1])
    offset = np.concatenate([[0], np.cumsum(upper + 1)])
    if offset[-1] > _MOST_ENTRIES:
        raise AllocationError("too many jobs and nodes for quotas.", next_step="Use --solver milp.")
    rows = Rows(np.zeros_like(upper), upper, offset, np.empty(offset[-1]))
    rows.table[offset[-2]] = 0.0
    fill_rows(options, rows, math.inf, 0, jobs)
    return rows


@njit(cache=True)
def _min_plus(group: Any, rest: Any, out: Any) -> None:
    """Write the (min, +) convolution: `out[w] = min over k of group[k] + rest[w - k]`."""
    out[:] = np.inf
    for k in range(len(group)):
        if group[k] == np.inf:
            continue
        for w in range(k, len(out)):
            x = group[k] + rest[w - k]
            out[w] = min(x, out[w])


def _nodes_of_groups(groups: list[_GroupRegrets], nodes: int, price: float) -> list[int]:
    """Return the best node count of each group; nodes of no group stay unused, at the price of a node."""
    rest: list[Floats] = [price * np.arange(nodes + 1.0)]
    for group in reversed(groups):
        joined = np.empty(nodes + 1)
        _min_plus(group.regret, rest[-1], joined)
        rest.append(joined)
    rest.reverse()
    least = rest[0][nodes]
    if not math.isfinite(least):
        raise AllocationError(
            "no allocation meets all quotas and the jobs that may not wait.",
            next_step="Relax a quota or let a job wait.",
        )
    tie = sum(group.tie for group in groups)
    chosen = []
    left, spent = nodes, 0.0
    for group, after in zip(groups, rest[1:], strict=True):
        top = min(group.most, left)
        total = spent + group.regret[: top + 1] + after[left - np.arange(top + 1)]
        k = int(np.flatnonzero(total <= least + tie)[-1])
        chosen.append(k)
        spent += group.regret[k]
        left -= k
    return chosen
