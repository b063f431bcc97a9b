"""Which nodes each job gets, given how many.

No job gives up a node and gains another (no migration): it keeps what it holds or part of it, so only changes are
looked at. Where there is a choice, the one with fewer later resizes is made: nodes that leave together go to one job,
and within that whole switches stay together. The order of the arguments decides everything else: equal calls give equal
placements.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from offcut.errors import AllocationError


@dataclass(frozen=True, slots=True)
class Placement:
    """The nodes that jobs gain and drop, by job; only jobs that change. A node that one drops another may gain."""

    gained: dict[str, tuple[str, ...]] = field(default_factory=dict)
    dropped: dict[str, tuple[str, ...]] = field(default_factory=dict)


def place(
    counts: Mapping[str, int],
    held: Mapping[str, Sequence[str]],
    free: Sequence[str],
    *,
    until_s: Mapping[str, float] | None = None,
    switch: Mapping[str, str] | None = None,
    cohort: Mapping[str, float] | None = None,
) -> Placement:
    """Turn counts into nodes.

    It takes time in proportion to what changes, and to `free` only if a job grows.

    Args:
        counts: the number of nodes of each job; a job that is left out gets none.
        held: the nodes that each job holds now, most worth keeping first.
        free: the nodes that no job holds, the best first.
        until_s: the known ends of nodes' windows, in seconds; nodes may be missing.
        switch: the switch of each node; nodes may be missing.
        cohort: when each node became idle: nodes that became idle together tend to end together; nodes may be missing.

    Returns:
        What each job gains and drops.

    Raises:
        AllocationError: there are fewer nodes than the counts need.
    """
    dropped: dict[str, tuple[str, ...]] = {}
    needs: list[tuple[str, int]] = []
    for job, nodes in held.items():
        keep = counts.get(job, 0)
        if keep < len(nodes):
            dropped[job] = tuple(nodes[keep:])
    for job, count in counts.items():
        more = count - len(held.get(job, ()))
        if more > 0:
            needs.append((job, more))
    if not needs:
        return Placement({}, dropped)

    need = sum(more for _, more in needs)
    spare = [node for nodes in dropped.values() for node in nodes]
    if need > len(free) + len(spare):
        raise AllocationError(
            f"placement: the jobs need {need} nodes more, but only {len(free) + len(spare)} are free.",
            next_step="The counts were made for more nodes than there are; solve again.",
        )
    if until_s is None and switch is None and cohort is None:
        pool = [*free[:need], *spare[: max(0, need - len(free))]]
        gained, at = {}, 0
        for job, more in needs:
            gained[job] = tuple(pool[at : at + more])
            at += more
        return Placement(gained, dropped)
    pool = _longest_lived([*free, *spare], need, until_s or {})
    return Placement(
        _together(pool, needs, held, until_s=until_s or {}, switch=switch or {}, cohort=cohort or {}), dropped
    )


def _longest_lived(pool: list[str], need: int, until_s: Mapping[str, float]) -> list[str]:
    """The nodes to choose from: where there are more than needed, those known to end soonest are left out."""
    known = sorted((i for i, node in enumerate(pool) if node in until_s), key=lambda i: (until_s[pool[i]], -i))
    spared = set(known[: len(pool) - need])
    return [node for i, node in enumerate(pool) if i not in spared]


def _together(
    pool: list[str],
    needs: list[tuple[str, int]],
    held: Mapping[str, Sequence[str]],
    *,
    until_s: Mapping[str, float],
    switch: Mapping[str, str],
    cohort: Mapping[str, float],
) -> dict[str, tuple[str, ...]]:
    """Serve the needs out of `pool`: larger needs first, each from as few blocks as possible."""

    def leaving(node: str) -> Hashable:
        end_s = until_s.get(node)
        return ("end", end_s) if end_s is not None else ("cohort", cohort.get(node))

    blocks = _Blocks(pool, leaving)
    gained: dict[str, tuple[str, ...]] = {job: () for job, _ in needs}
    for job, more in sorted(needs, key=lambda item: -item[1]):
        own = held.get(job, ())
        taken: list[str] = []
        liked = {leaving(node) for node in own} - {("cohort", None)}
        switches: set[Hashable] = {switch[node] for node in own if node in switch}
        while len(taken) < more:
            block = blocks.best(more - len(taken), liked)
            part = _Blocks(blocks.nodes[block], switch.get)
            while len(taken) < more and part.nodes:
                one = part.best(more - len(taken), switches)
                nodes = part.take(one, more - len(taken))
                taken.extend(nodes)
                if one is not None:
                    switches.add(one)
                blocks.remove(block, nodes)
        gained[job] = tuple(taken)
    return gained


class _Blocks:
    """Nodes by what they share, blocks and nodes in order of appearance."""

    def __init__(self, pool: Iterable[str], key: Callable[[str], Hashable]) -> None:
        self.nodes: dict[Hashable, list[str]] = {}
        for node in pool:
            self.nodes.setdefault(key(node), []).append(node)

    def best(self, need: int, liked: set[Hashable]) -> Hashable:
        """A block that the job likes (the largest), else the smallest that has all it needs, else the largest."""
        mine = [block for block in self.nodes if block in liked]
        if mine:
            return max(mine, key=lambda block: len(self.nodes[block]))
        enough = [block for block, nodes in self.nodes.items() if len(nodes) >= need]
        if enough:
            return min(enough, key=lambda block: len(self.nodes[block]))
        return max(self.nodes, key=lambda block: len(self.nodes[block]))

    def take(self, block: Hashable, count: int) -> list[str]:
        """Take up to `count` nodes out of a block."""
        nodes = self.nodes[block][:count]
        self.remove(block, nodes)
        return nodes

    def remove(self, block: Hashable, nodes: Sequence[str]) -> None:
        gone = set(nodes)
        left = [node for node in self.nodes[block] if node not in gone]
        if left:
            self.nodes[block] = left
        else:
            del self.nodes[block]
