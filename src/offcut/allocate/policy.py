"""Allocation policies: rules that decide in place of a solver, built in or loaded from a user's file.

A policy is a function of the problem that returns a node count per job; a job that it leaves out gets no nodes. The
counts are checked before they are used.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Protocol

from offcut.allocate.objective import allocation_value, allowed_sizes
from offcut.errors import InputError
from offcut.model import Allocation, AllocationProblem
from offcut.userfile import load_function


class Policy(Protocol):
    """Decides how many nodes each job gets: for each job 0 or an allowed size, together at most the problem's nodes.

    Equal problems must give equal answers, and an answer may depend on the problem alone: replays rely on both.
    """

    def __call__(self, problem: AllocationProblem, /) -> Mapping[str, int]:
        """Decide a problem.

        Args:
            problem: the jobs, the number of nodes and the horizon.

        Returns:
            The node count of each job, by its id; a job that is left out gets no nodes.
        """
        ...


#: The policies that come with offcut: name to module and function.
BUILT_IN = {
    "equal-share": ("offcut.allocate.baselines.equal_share", "allocate"),
    "equal-share-published": ("offcut.allocate.baselines.equal_share", "allocate_published"),
    "first-come": ("offcut.allocate.baselines.first_come", "allocate"),
    "greedy": ("offcut.allocate.baselines.greedy", "allocate"),
    "static": ("offcut.allocate.baselines.static", "allocate"),
    "pollux": ("offcut.allocate.baselines.pollux", "allocate"),
    "max-min": ("offcut.allocate.baselines.max_min", "allocate"),
}


def load(name: str) -> Policy:
    """Load a policy by its name or out of a file.

    Args:
        name: a key of `BUILT_IN`, or `my_policy.py:allocate`; the function is `allocate` if it is not named.

    Returns:
        The policy.

    Raises:
        InputError: no policy has this name, or the file cannot be loaded.
    """
    if name in BUILT_IN:
        module, function = BUILT_IN[name]
        built_in: Policy = getattr(importlib.import_module(module), function)
        return built_in
    example = "def allocate(problem): return {job.id: nodes, ...}."
    policy: Policy = load_function(name, what="policy", default="allocate", example=example, built_in=BUILT_IN)
    return policy


def decide(policy: Policy, problem: AllocationProblem, name: str = "policy") -> Allocation:
    """Ask a policy and check its answer.

    Args:
        policy: the policy.
        problem: what to decide.
        name: what messages call the policy.

    Returns:
        The allocation. Its bound is infinite and it is not `proven`, because a policy proves nothing.

    Raises:
        InputError: the policy failed, or its answer is not an allocation of the problem.
    """
    started = time.perf_counter()
    try:
        given = dict(policy(problem))
    except Exception as error:
        raise InputError(f"{name}: {type(error).__name__}: {error}.", next_step="Correct the policy.") from error
    solve_ms = (time.perf_counter() - started) * 1e3
    nodes = {job.id: given.pop(job.id, 0) for job in problem.jobs}
    if given:
        raise InputError(f"{name}: unknown job '{next(iter(given))}'.", next_step="Return ids of this problem's jobs.")
    for job in problem.jobs:
        n = nodes[job.id]
        if not isinstance(n, int) or isinstance(n, bool) or n not in set(allowed_sizes(job, problem.nodes)):
            raise InputError(
                f"{name}: job '{job.id}' got {n!r} nodes, which is not one of its sizes.",
                next_step="Return 0 or an allowed size.",
            )
    if (used := sum(nodes.values())) > problem.nodes:
        raise InputError(
            f"{name}: it gave {used} of {problem.nodes} nodes.",
            next_step="Return at most as many nodes as the problem has.",
        )
    for group in problem.groups:
        have = sum(nodes[job.id] for job in problem.jobs if job.group == group.id)
        if group.max_nodes is not None and have > group.max_nodes:
            raise InputError(
                f"{name}: group '{group.id}' got {have} nodes, its quota is {group.max_nodes}.",
                next_step="Respect problem.groups, or leave the quotas out.",
            )
    return Allocation(
        nodes=nodes,
        objective=allocation_value(problem, nodes),
        bound=float("inf"),
        proven=False,
        solve_ms=solve_ms,
    )
