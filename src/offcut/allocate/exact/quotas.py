"""Counts under group quotas: one row of values per group, then the groups against each other.

A group with a cap may not have more nodes than that. A group with a share is entitled to `share / sum of shares` of the
nodes and gets at least what its jobs, left to themselves, would make the best use of within that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from offcut.allocate.exact import counts
from offcut.allocate.exact import relaxation as kernels
from offcut.allocate.exact import search as core
from offcut.allocate.exact.counts import Counts
from offcut.allocate.exact.pieces import Pieces, build, subset
from offcut.errors import AllocationError
from offcut.model import AllocationProblem, Group

# mypy: disallow-untyped-decorators=False
#: Entries of all groups' rows together; more would take gigabytes.
_MOST_ENTRIES = 200_000_000


def decide(pieces: Pieces, problem: AllocationProblem, until: float = math.inf) -> Counts:
    """As `counts.decide`, within the problem's quotas. Ties go to the groups in the order of their first jobs."""
    free = counts.decide(pieces, problem.nodes, until)
    if not problem.groups:
        return free
    members: dict[str | None, list[int]] = {}
    for j, job in enumerate(problem.jobs):
        members.setdefault(job.group, []).append(j)
    by_id = {group.id: group for group in problem.groups}
    shares = sum(group.share or 0.0 for group in problem.groups)
    used = {g: int(free.sizes[jobs].sum()) for g, jobs in members.items()}
    if not shares and all(g.max_nodes is None or used.get(g.id, 0) <= g.max_nodes for g in problem.groups):
        return free
    rows = [
        _Row(pieces, jobs, nodes=problem.nodes, lam=free.price, group=by_id.get(g or ""), shares=shares)
        for g, jobs in members.items()
    ]
    if all(row.least <= int(free.sizes[row.jobs].sum()) <= row.most for row in rows):
        return free
    return _combine(pieces, rows, problem.nodes, free)


def entitlements(problem: AllocationProblem) -> dict[str, int]:
    """Per group with a share the nodes that it gets at least."""
    shares = sum(group.share or 0.0 for group in problem.groups)
    pieces = build(problem)
    least = {}
    for group in problem.groups:
        jobs = [j for j, job in enumerate(problem.jobs) if job.group == group.id]
        if group.share is not None and jobs:
            row = _Row(pieces, jobs, nodes=problem.nodes, lam=0.0, group=group, shares=shares)
            least[group.id] = row.least
    return least


class _Row:
    """A group's least total regret for each number of nodes that it may have."""

    def __init__(
        self, pieces: Pieces, jobs: list[int], *, nodes: int, lam: float, group: Group | None, shares: float
    ) -> None:
        self.jobs = jobs
        self.pieces = subset(pieces, jobs)
        p = self.pieces
        self.most = nodes if group is None or group.max_nodes is None else min(nodes, group.max_nodes)
        _, _, self.tie, nudged, best, self.fewest = kernels.relax(
            nodes, p.start, p.low, p.high, p.slope, p.base, p.current
        )
        if self.fewest > self.most:
            raise AllocationError(
                f"group '{group.id if group else ''}': its jobs that may not wait need {self.fewest} nodes, "
                f"but its quota is {self.most}.",
                next_step="Raise max_nodes, or let a job wait.",
            )
        kernels.best_at(lam, p.start, p.low, p.high, p.slope, nudged, best)
        self.sizes = np.empty(len(jobs), np.int64)
        self.options = core.options(math.inf, self.most, lam, p.start, p.low, p.high, p.slope, nudged, best, self.sizes)
        job, start, first, last, regret, per_node, room = self.options
        self.upper = np.zeros(len(job) + 1, np.int64)
        for q in range(len(job) - 1, -1, -1):
            self.upper[q] = min(room, self.upper[q + 1] + last[start[q + 1] - 1])
        self.lower = np.zeros_like(self.upper)
        self.offset = np.concatenate([[0], np.cumsum(self.upper + 1)])
        if self.offset[-1] > _MOST_ENTRIES:
            raise AllocationError("too many jobs and nodes for quotas.", next_step="Use --solver milp.")
        self.table = np.empty(self.offset[-1])
        self.table[self.offset[-2]] = 0.0
        core.fill_rows(
            0, len(job), math.inf, start, first, last, regret, per_node, self.lower, self.upper, self.offset, self.table
        )  # fmt: skip
        self.regret = np.full(self.most + 1, math.inf)
        base = self.most - room
        self.base = base
        self.regret[base : base + self.upper[0] + 1] = self.table[: self.upper[0] + 1]
        self.least = self._least(nodes, lam, group.share / shares if group is not None and group.share else 0.0)
        self.regret[: self.least] = math.inf

    def _least(self, nodes: int, lam: float, share: float) -> int:
        """The node count at which the jobs make the best use of what the group is entitled to."""
        entitled = min(self.most, int(nodes * share + 1e-9))
        if entitled < self.base:
            return 0
        # Regrets are against the price of a node; without it they are (minus) values again.
        lost = self.regret[: entitled + 1] - lam * np.arange(entitled + 1)
        return int(np.flatnonzero(lost <= lost.min() + self.tie)[0])

    def share_out(self, nodes: int) -> Any:
        """The sizes of the group's jobs when it has exactly `nodes`."""
        job, start, first, last, regret, per_node, _ = self.options
        sizes = self.sizes.copy()
        target = self.regret[nodes] + self.tie
        core.walk(
            0, len(job), nodes - self.base, 0.0, target, job, start, first, last, regret, per_node, self.lower,
            self.upper, self.offset, self.table, sizes,
        )  # fmt: skip
        return sizes


@njit(cache=True)
def _join(group: Any, rest: Any, out: Any) -> None:
    """`out[w] = min over k of group[k] + rest[w - k]`."""
    out[:] = np.inf
    for k in range(len(group)):
        if group[k] == np.inf:
            continue
        for w in range(k, len(out)):
            x = group[k] + rest[w - k]
            out[w] = min(x, out[w])


def _combine(pieces: Pieces, rows: list[_Row], nodes: int, free: Counts) -> Counts:
    """The best node count per group; what none of them takes stays unused."""
    rest = [free.price * np.arange(nodes + 1.0)]
    for row in reversed(rows):
        joined = np.empty(nodes + 1)
        _join(row.regret, rest[-1], joined)
        rest.append(joined)
    rest.reverse()
    least = rest[0][nodes]
    if not math.isfinite(least):
        raise AllocationError(
            "no allocation meets all quotas and the jobs that may not wait.",
            next_step="Relax a quota or let a job wait.",
        )
    tie = sum(row.tie for row in rows)
    sizes = np.zeros(len(pieces.current), np.int64)
    left, spent = nodes, 0.0
    for row, after in zip(rows, rest[1:], strict=True):
        top = min(row.most, left)
        total = spent + row.regret[: top + 1] + after[left - np.arange(top + 1)]
        k = int(np.flatnonzero(total <= least + tie)[-1])
        sizes[row.jobs] = row.share_out(k)
        spent += row.regret[k]
        left -= k
    objective = float(core.value_of(pieces.start, pieces.low, pieces.high, pieces.slope, pieces.base, sizes))
    return Counts(sizes, objective, objective, True, free.price)
