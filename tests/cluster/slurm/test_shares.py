"""Shares of controllers: who may hold how many nodes, and that nodes do not go to and fro. All pure, virtual time."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

import pytest

from offcut.cluster.slurm.decision import Decider, LookInput
from offcut.cluster.slurm.pilot_state import Pilot, PilotState
from offcut.cluster.slurm.records import JobRow, NodeRow, PartitionRow, View
from offcut.cluster.slurm.shares import Controller, Pool, ShareBalance, share_nodes, stretch
from offcut.cluster.slurm.site import make_site
from offcut.cluster.slurm.site_rules import SiteRules
from offcut.cluster.slurm.waiting_jobs import PILOT_NICE

INTERVAL_S = 30.0
NOW = datetime(2026, 1, 5, 12, 0)
EPOCH_S = 1_000_000.0


def controller(user: str, held: int, more: int = 0, name: str = "offcut-00000001") -> Controller:
    return Controller(user=user, name=name, held=held, more=more)


def shares(nodes: int, *controllers: Controller, **rules: object) -> list[int]:
    found = share_nodes(nodes, controllers, SiteRules(**rules))
    return [found[one.user, one.name] for one in controllers]


def test_equal_shares_up_to_what_each_holds_and_asks_for() -> None:
    assert shares(10, controller("ann", 10), controller("bob", 0, 10)) == [5, 5]
    assert shares(10, controller("ann", 10), controller("bob", 0, 2)) == [8, 2]
    assert shares(10, controller("ann", 3), controller("bob", 3)) == [3, 3]
    assert shares(5, controller("ann", 2, 9), controller("bob", 3, 9)) == [2, 3], "the one that holds more keeps it"


def test_shares_of_users_and_of_a_user_s_own_controllers() -> None:
    named = {"ann": 3.0}
    assert shares(8, controller("ann", 0, 9), controller("bob", 0, 9), shares=named) == [6, 2]
    two = controller("bob", 4, 9, "offcut-00000002")
    assert shares(8, controller("ann", 0, 9), controller("bob", 4, 9), two) == [4, 2, 2]


def test_caps_for_all_and_for_each_user() -> None:
    both = controller("ann", 6, 9), controller("bob", 2, 9)
    assert shares(10, *both, max_nodes=4) == [2, 2]
    assert shares(10, *both, max_nodes_per_user=3) == [3, 3]
    assert shares(10, *both, max_nodes=0) == [0, 0]


def pool(nodes: int, held: int, *others: Controller, idle: int = 0) -> Pool:
    return Pool(nodes=nodes, idle=idle, us=controller("ann", held, nodes - held), others=others)


def test_a_surplus_is_released_when_it_has_been_seen_twice_and_by_halves() -> None:
    balance = ShareBalance(confirm_s=10.0)
    crowded = pool(16, 16, *(controller(user, 0, 16) for user in ("bob", "cy", "dan")))
    assert balance.decide(crowded, SiteRules(), 0.0).release == 0
    assert balance.decide(crowded, SiteRules(), 10.0).release == 8
    later = pool(16, 8, *(controller(user, 0, 16) for user in ("bob", "cy", "dan")), idle=8)
    assert balance.decide(later, SiteRules(), 20.0).release == 4
    assert balance.decide(pool(16, 4, *(controller(user, 4) for user in "bcd")), SiteRules(), 30.0).release == 0


def test_one_without_nodes_asks_at_once_and_others_when_they_lack_them_for_a_while() -> None:
    balance = ShareBalance(confirm_s=10.0)
    assert balance.decide(pool(8, 0, controller("bob", 8)), SiteRules(), 0.0).ask == 8
    balance = ShareBalance(confirm_s=10.0)
    assert balance.decide(pool(8, 2, controller("bob", 6)), SiteRules(), 0.0).ask == 0
    assert balance.decide(pool(8, 2, controller("bob", 6)), SiteRules(), 10.0).ask == 6
    assert balance.decide(pool(8, 2, controller("bob", 4), idle=2), SiteRules(), 20.0).ask == 0, (
        "it can claim idle ones"
    )


def test_a_request_that_leaves_nodes_idle_is_ignored() -> None:
    balance = ShareBalance(confirm_s=10.0, patience_s=60.0)
    asked = pool(8, 4, controller("bob", 0, 4), idle=4)
    assert balance.decide(asked, SiteRules(), 0.0).share == 4
    assert balance.decide(asked, SiteRules(), 61.0).share == 8


def test_looks_per_minute_of_each_controller_fall_with_their_number() -> None:
    for preemptible in (True, False):
        factors = [stretch(n, preemptible=preemptible) for n in (1, 2, 5)]
        assert factors == sorted(set(factors))
    assert stretch(1, preemptible=True) == 1.0
    assert 500 / stretch(500, preemptible=True) == 50.0, "500 controllers look as often as 50 did"
    assert stretch(500, preemptible=False) == 2.0, "in backfill the queue waits for a look"


@dataclass
class Site:
    """A Slurm in virtual time, with controllers that decide as the adapter's do."""

    nodes: list[str]
    rules: SiteRules = field(default_factory=SiteRules)
    now_s: float = 0.0
    #: By node: the controller that holds it, None while it is idle; "main" for jobs of the queue.
    holder: dict[str, str | None] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    #: When each node changed hands.
    changes: list[tuple[float, str]] = field(default_factory=list)
    looks: dict[str, list[float]] = field(default_factory=dict)

    def view(self, us: str) -> View:
        own = {f"{node}@{us}": row(node, us) for node, who in self.holder.items() if who == us}
        others = [row(node, who) for node, who in self.holder.items() if who not in (us, None, "main")]
        others += [row("", who, nodes) for who, nodes in self.requests.items() if who != us and nodes]
        state = {node: "idle" if who is None else "allocated" for node, who in self.holder.items()}
        return View(
            time_s=EPOCH_S + self.now_s,
            clock_s=self.now_s,
            nodes={node: NodeRow(name=node, state=state[node]) for node in self.nodes},
            waiting=(),
            own=own,
            others=tuple(others),
            partition=PARTITION,
            partitions={"idle": PARTITION},
        )

    def give(self, node: str, who: str | None) -> None:
        if who not in (None, "main"):
            self.changes.append((self.now_s, node))
        self.holder[node] = who

    def counts(self) -> dict[str, int]:
        return {who: list(self.holder.values()).count(who) for who in self.looks}


PARTITION = PartitionRow(
    name="idle", up=True, nodes="n[0-59]", max_time_s=None, preempt_mode="CANCEL", grace_s=0.0, priority_tier=1
)


def row(node: str, who: str, asks: int = 0) -> JobRow:
    return JobRow(
        id=f"{node}@{who}",
        state="PENDING" if asks else "RUNNING",
        user=who,
        name="offcut-00000001",
        partitions=("idle",),
        node_count=asks or 1,
        nice=PILOT_NICE,
        nodes=node,
        required=node,
        reason="BeginTime" if asks else "None",
        end_s=None,
    )


def simulate(
    site: Site,
    joins_s: dict[str, float],
    until_s: float,
    churn: Callable[[Site], None] = lambda _: None,
    **limits: dict[str, object],
) -> None:
    """Let each controller look from `joins_s` on until `until_s`; jobs could use all nodes.

    `limits` are fields of the site's files of some.
    """
    table = {"partition": "idle", "mode": "preemptible", "interval_s": INTERVAL_S}
    deciders = {
        who: Decider(make_site({**table, **limits.get(who, {})}, "test"), who, "offcut-00000001") for who in joins_s
    }
    submitted_s: dict[str, float] = {}
    due = [(at_s, who) for who, at_s in joins_s.items()]
    heapq.heapify(due)
    while due[0][0] <= until_s:
        site.now_s, who = heapq.heappop(due)
        site.looks.setdefault(who, []).append(site.now_s)
        churn(site)
        pilots = {
            node: Pilot(node, PilotState.RUNNING, submitted_s.get(node, 0.0), f"{node}@{who}")
            for node, holder in site.holder.items()
            if holder == who
        }
        given = LookInput(pilots=pilots, rules=site.rules, now=NOW, demand=len(site.nodes))
        decision = deciders[who].decide(site.view(who), given)
        for node in decision.leave:
            site.give(node, None)
        for candidate in decision.chosen:
            site.give(candidate.node, who)
            submitted_s[candidate.node] = site.now_s
        site.requests[who] = decision.share.ask
        others = len(decision.pool.others)
        wait_s = INTERVAL_S / 3 if decision.share.above else INTERVAL_S * stretch(1 + others, preemptible=True)
        heapq.heappush(due, (site.now_s + wait_s, who))


def site_of(count: int, **rules: object) -> Site:
    nodes = [f"n{i}" for i in range(count)]
    return Site(nodes=nodes, rules=SiteRules(**rules), holder=dict.fromkeys(nodes))


def calm(site: Site, after_s: float) -> None:
    """No node changes hands twice within a minute."""
    times: dict[str, list[float]] = {}
    for at_s, node in site.changes:
        if at_s > after_s:
            times.setdefault(node, []).append(at_s)
    for changes in times.values():
        assert all(b - a >= 60.0 for a, b in pairwise(changes)), changes


@pytest.mark.parametrize("users", [2, 5])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("first_alone", [False, True])
def test_shares_are_equal_within_two_minutes_and_stay(users: int, seed: int, first_alone: bool) -> None:
    site = site_of(60)
    rng = random.Random(seed)
    # The others come within one interval, when the first holds all nodes or when nobody has any.
    began_s = 600.0 if first_alone else 0.0
    joins_s = {f"u{i}": began_s + rng.uniform(0.0, INTERVAL_S) for i in range(users)}
    if first_alone:
        joins_s["u0"] = 0.0
    fair = 60 / users
    simulate(site, joins_s, began_s + 120.0)
    for count in site.counts().values():
        assert abs(count - fair) <= 0.1 * fair, site.counts()


@pytest.mark.parametrize("users", [2, 5])
def test_nothing_moves_once_shares_are_equal(users: int) -> None:
    site = site_of(60)
    simulate(site, {f"u{i}": 7.0 * i for i in range(users)}, 3600.0)
    assert site.counts() == {f"u{i}": 60 // users for i in range(users)}
    assert all(at_s < 240.0 for at_s, _ in site.changes)
    alone = site_of(60)
    simulate(alone, {"u0": 0.0}, 3600.0)
    looks = len(site.looks["u0"])
    assert looks < len(alone.looks["u0"]), "a controller asks less often where there are others"


@pytest.mark.parametrize("users", [2, 5])
def test_no_node_goes_to_and_fro_while_the_queue_takes_nodes_and_leaves_them(users: int) -> None:
    site = site_of(60)
    rng = random.Random(users)
    next_s = [300.0]

    def churn(site: Site) -> None:
        if site.now_s >= next_s[0]:
            next_s[0] += 120.0
            for node, who in list(site.holder.items()):
                if who == "main":
                    site.holder[node] = None
            for node in rng.sample(site.nodes, 12):
                site.holder[node] = "main"

    simulate(site, {f"u{i}": 5.0 * i for i in range(users)}, 3600.0, churn)
    calm(site, 240.0)
    fair = 48 / users
    assert all(abs(count - fair) <= 0.3 * fair for count in site.counts().values()), site.counts()


def test_caps_for_all_controllers_hold_together() -> None:
    site = site_of(40, max_nodes=10, shares={"u0": 3.0})
    simulate(site, {"u0": 0.0, "u1": 40.0}, 600.0)
    counts = site.counts()
    assert sum(counts.values()) == 10
    assert abs(counts["u0"] - 7.5) < 1.0


def test_nodes_that_the_queue_does_not_use_are_left_to_power_saving() -> None:
    site = site_of(4, leave_idle_after_s=600.0)
    simulate(site, {"u0": 0.0}, 500.0)
    assert site.counts() == {"u0": 4}
    site = site_of(4, leave_idle_after_s=600.0)

    def churn(site: Site) -> None:
        if 400.0 <= site.now_s < 500.0:
            site.holder["n1"] = "main"
        elif site.holder["n1"] == "main":
            site.holder["n1"] = None

    simulate(site, {"u0": 0.0}, 900.0, churn)
    assert [node for node, who in site.holder.items() if who] == ["n1"], "a job used it lately"


def test_none_asks_for_nodes_that_its_own_file_forbids() -> None:
    site = site_of(40)
    simulate(site, {"u0": 0.0, "u1": 100.0}, 600.0, u1={"max_nodes": 4})
    assert site.counts() == {"u0": 36, "u1": 4}
    site = site_of(40)
    simulate(site, {"u0": 0.0, "u1": 100.0}, 600.0, u1={"quiet": ["00:00-24:00"]})
    assert site.counts() == {"u0": 40, "u1": 0}
    assert all(at_s == 0.0 for at_s, _ in site.changes)


def test_a_share_of_the_idle_nodes_counts_those_that_others_have() -> None:
    site = site_of(40)
    simulate(site, {"u0": 0.0, "u1": 100.0}, 1200.0, u0={"max_share": 0.25})
    assert site.counts() == {"u0": 10, "u1": 30}
