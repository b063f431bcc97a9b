"""How many nodes each controller may hold, where several users' controllers claim nodes of one Slurm. Pure.

Controllers never talk to each other. Each sees the pilots of all others in the queue, and computes the same shares: of
what is idle and what all of them hold, one node after the other goes to the user who has least for his share, and among
a user's controllers to the one that has least. None gets more than it holds or has asked for. A controller below its
share that finds no idle node asks for more by a *request*: a job that is due later, and withdrawn before.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from offcut.cluster.slurm.records import JobRow, View, expand
from offcut.cluster.slurm.site_rules import SiteRules

#: States in which a job has its nodes.
_HAS_NODES = frozenset({"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A controller, as the queue shows it."""

    user: str
    #: The job name of its pilots.
    name: str
    #: On how many nodes it has pilots, running or submitted.
    held: int = 0
    #: How many more nodes it asks for.
    more: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The nodes that controllers share."""

    #: How many there are: idle ones, and those of all pilots.
    nodes: int
    #: How many of them we could claim now.
    idle: int
    #: How many of them the pilots of others have.
    theirs: int = 0
    us: Controller
    others: tuple[Controller, ...] = ()

    def with_demand(self, nodes: int) -> Pool:
        """Return the pool with how many nodes we could use in all."""
        wanted = min(nodes, self.nodes)
        return replace(self, us=replace(self.us, more=max(0, wanted - self.us.held)))


def is_request(row: JobRow) -> bool:
    """Return whether a job of a controller asks for nodes. Its pilots require one node each."""
    return row.state == "PENDING" and not row.required


def share_nodes(nodes: int, controllers: Iterable[Controller], rules: SiteRules) -> dict[tuple[str, str], int]:
    """Return how many of the nodes each controller may hold, by user and name.

    Args:
        nodes: How many nodes there are.
        controllers: All controllers.
        rules: The users' shares, and the caps for all controllers together and for each user.
    """
    by_user: dict[str, list[Controller]] = {}
    for controller in controllers:
        by_user.setdefault(controller.user, []).append(controller)
    room = nodes if rules.max_nodes is None else min(nodes, rules.max_nodes)
    cap = room if rules.max_nodes_per_user is None else rules.max_nodes_per_user
    users = [
        Controller(
            user=user,
            name="",
            held=sum(one.held for one in theirs),
            more=min(cap, sum(one.held + one.more for one in theirs)) - sum(one.held for one in theirs),
        )
        for user, theirs in by_user.items()
    ]
    of_user = _fill(room, users, {user: rules.shares.get(user, 1.0) for user in by_user})
    shares: dict[tuple[str, str], int] = {}
    for user, theirs in by_user.items():
        shares |= _fill(of_user[user, ""], theirs, {})
    return shares


def _fill(nodes: int, controllers: Sequence[Controller], weights: Mapping[str, float]) -> dict[tuple[str, str], int]:
    """Give one node after the other to whom has least for its weight, up to what each holds and asks for."""
    given = {(one.user, one.name): 0 for one in controllers}
    # Among equals, controllers that hold more come first, so that fewer nodes move.
    heap = [
        (1.0 / weights.get(one.user, 1.0), -one.held, one.user, one.name, one.held + one.more) for one in controllers
    ]
    heapq.heapify(heap)
    while nodes > 0 and heap:
        _, held, user, name, most = heapq.heappop(heap)
        if given[user, name] < most:
            given[user, name] += 1
            nodes -= 1
            heapq.heappush(heap, ((given[user, name] + 1) / weights.get(user, 1.0), held, user, name, most))
    return given


def pool_of(
    view: View, us: Controller, *, ours: AbstractSet[str], idle: AbstractSet[str], claimable: AbstractSet[str]
) -> Pool:
    """Return the nodes that controllers share, as the queue shows them.

    Args:
        view: The queue.
        us: This controller.
        ours: Nodes of our pilots, without those that the queue wants.
        idle: Idle nodes that are safe to claim.
        claimable: Those of them that we could claim now.
    """
    running: dict[str, set[str]] = {}
    pending: list[tuple[str, str, str]] = []
    more: dict[tuple[str, str], int] = {}
    ending: set[str] = set()
    for row in view.others:
        key = row.user, row.name
        here = [node for node in expand(row.nodes or row.required) if node in view.nodes]
        if is_request(row):
            if _shares_nodes(row, view):
                more[key] = more.get(key, 0) + row.node_count
        elif row.state in _HAS_NODES:
            for node in here:
                running.setdefault(node, set()).add(row.user + "\n" + row.name)
        elif row.state == "PENDING":
            pending += [(*key, node) for node in here]
        else:
            ending.update(here)
    held: dict[tuple[str, str], int] = {}
    for owners in running.values():
        for owner in owners:
            user, _, name = owner.partition("\n")
            held[user, name] = held.get((user, name), 0) + 1
    for user, name, node in pending:
        # If two pilots claim a node at once, the running one has it.
        if node not in running and node not in ours:
            held[user, name] = held.get((user, name), 0) + 1
    others = tuple(
        Controller(user=user, name=name, held=held.get((user, name), 0), more=more.get((user, name), 0))
        for user, name in sorted(held.keys() | more.keys())
    )
    theirs = (running.keys() | ending) - ours - idle
    nodes = len(idle | ours | theirs)
    return Pool(nodes=nodes, idle=len(claimable), theirs=len(theirs), us=us, others=others)


def _shares_nodes(row: JobRow, view: View) -> bool:
    partitions = [view.partitions.get(name) for name in row.partitions]
    return any(part is None or any(node in view.nodes for node in expand(part.nodes)) for part in partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDecision:
    """What a controller does about its share."""

    #: How many nodes it may hold, and how many more than now. Pilots that are leaving do not count.
    share: int
    room: int = 0
    #: How many of its nodes to release now.
    release: int = 0
    #: How many more nodes to ask for.
    ask: int = 0
    #: It holds more than its share: look again soon.
    above: bool = False


@dataclass(slots=True)
class ShareBalance:
    """Decides, look after look, what a controller does about its share; slowly, so that no node goes to and fro.

    A surplus must be seen twice, `confirm_s` apart, before nodes are released, and at most half of those held are
    released at one look. A request that has left idle nodes unused for `patience_s` is ignored while it lasts.
    """

    confirm_s: float
    patience_s: float = 120.0
    _above_since_s: float | None = None
    _below_since_s: float | None = None
    _requested_since_s: dict[tuple[str, str], float] = field(default_factory=dict)

    def decide(self, pool: Pool, rules: SiteRules, now_s: float) -> ShareDecision:
        """Return what to do after a look at `now_s`."""
        others = self._without_vain_requests(pool, now_s)
        us = pool.us
        share = share_nodes(pool.nodes, (us, *others), rules)[us.user, us.name]
        above, below = us.held - share, share - us.held - pool.idle
        self._above_since_s = None if above <= 0 else now_s if self._above_since_s is None else self._above_since_s
        self._below_since_s = None if below <= 0 else now_s if self._below_since_s is None else self._below_since_s
        release = ask = 0
        if self._above_since_s is not None and now_s - self._above_since_s >= self.confirm_s:
            release = min(above, max(1, (us.held + 1) // 2))
        # One that holds nothing cannot be seen otherwise, so it asks at once.
        if self._below_since_s is not None and (us.held == 0 or now_s - self._below_since_s >= self.confirm_s):
            ask = us.more
        return ShareDecision(share=share, room=share - us.held, release=release, ask=ask, above=above > 0)

    def _without_vain_requests(self, pool: Pool, now_s: float) -> list[Controller]:
        asking = {(one.user, one.name) for one in pool.others if one.more}
        self._requested_since_s = {
            key: self._requested_since_s.get(key, now_s) if pool.idle else now_s for key in asking
        }
        vain = {key for key, since_s in self._requested_since_s.items() if now_s - since_s > self.patience_s}
        return [replace(one, more=0) if (one.user, one.name) in vain else one for one in pool.others]


def stretch(controllers: int, *, preemptible: bool) -> float:
    """Return the factor by which the interval between looks is longer with this many controllers.

    All together then look at most four times as often as one, up to 40 controllers. In `backfill` the queue waits for
    a look, so the interval is at most doubled.
    """
    return min(1.0 + 0.25 * max(0, controllers - 1), 10.0 if preemptible else 2.0)
