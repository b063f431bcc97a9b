"""Which nodes each job gets, given how many.

No job drops a node and gains another (no migration): it keeps all of its nodes or some of them, so only changes are
computed. Nodes that are expected to be reclaimed together go to one job, so that fewer jobs are resized later; within
that, nodes of one switch stay together. The order of the arguments decides everything else: equal calls give equal
placements.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from offcut.errors import AllocationError


@dataclass(frozen=True, slots=True)
class Placement:
    """The nodes that each changed job gains and drops. A node that one job drops may be gained by another."""

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

    The time is proportional to the number of changed nodes, and to the length of `free` only if a job grows.

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
    """Return `need` nodes of the pool; those with the earliest known ends are left out."""
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
    """Serve the needs from `pool`, larger needs first, each from as few blocks as possible."""

    def leaving(node: str) -> Hashable:
        end_s = until_s.get(node)
        return ("end", end_s) if end_s is not None else ("cohort", cohort.get(node))

    blocks = _Blocks(pool, leaving)
    gained: dict[str, tuple[str, ...]] = {job: () for job, _ in needs}
    for job, more in sorted(needs, key=lambda item: -item[1]):
        own = held.get(job, ())
        taken: list[str] = []
        preferred = {leaving(node) for node in own} - {("cohort", None)}
        switches: set[Hashable] = {switch[node] for node in own if node in switch}
        while len(taken) < more:
            block = blocks.best(more - len(taken), preferred)
            part = _Blocks(blocks.nodes[block], switch.get)
            while len(taken) < more and part.nodes:
                one = part.best(more - len(taken), switches)
                nodes = part.remove_first(one, more - len(taken))
                taken.extend(nodes)
                if one is not None:
                    switches.add(one)
                blocks.remove(block, nodes)
        gained[job] = tuple(taken)
    return gained


class _Blocks:
    """Nodes grouped by a key; blocks and nodes are in the order in which they appear."""

    def __init__(self, pool: Iterable[str], key: Callable[[str], Hashable]) -> None:
        self.nodes: dict[Hashable, list[str]] = {}
        for node in pool:
            self.nodes.setdefault(key(node), []).append(node)

    def best(self, need: int, preferred: set[Hashable]) -> Hashable:
        """Return the largest preferred block, else the smallest one of at least `need` nodes, else the largest."""
        mine = [block for block in self.nodes if block in preferred]
        if mine:
            return max(mine, key=lambda block: len(self.nodes[block]))
        enough = [block for block, nodes in self.nodes.items() if len(nodes) >= need]
        if enough:
            return min(enough, key=lambda block: len(self.nodes[block]))
        return max(self.nodes, key=lambda block: len(self.nodes[block]))

    def remove_first(self, block: Hashable, count: int) -> list[str]:
        """Remove up to `count` nodes from a block and return them."""
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
