"""Which idle nodes are safe to take, for how long; and when to leave. All pure."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offcut.cluster.slurm import held_nodes, idle_nodes, limits
from offcut.cluster.slurm.records import JobRow, NodeRow, PartitionRow, ReservationRow, View
from offcut.cluster.slurm.site import SlurmSite, make_site

NOW_S = 1_000_000.0


def node(name: str, state: str = "idle", *flags: str) -> NodeRow:
    return NodeRow(name=name, state=state, flags=frozenset(flags))


def waiting(job: str, nodes: int, *, on: str = "", at_s: float | None = None, reason: str = "Resources") -> JobRow:
    return JobRow(
        id=job,
        state="PENDING",
        user="u",
        name="x",
        partitions=("main",),
        node_count=nodes,
        scheduled=on,
        start_s=at_s,
        reason=reason,
    )


def pilot(node: str, end_s: float = NOW_S + 1200) -> JobRow:
    return JobRow(
        id=f"p-{node}",
        state="RUNNING",
        user="me",
        name="offcut",
        partitions=("idle",),
        node_count=1,
        nodes=node,
        end_s=end_s,
    )


def view(
    *nodes: NodeRow, jobs: tuple[JobRow, ...] = (), reserved: tuple[ReservationRow, ...] = (), **partition
) -> View:
    row = {"name": "idle", "up": True, "nodes": "", "max_time_s": None, "preempt_mode": "CANCEL"}
    return View(
        time_s=NOW_S,
        nodes={item.name: item for item in nodes},
        waiting=jobs,
        own={},
        reservations=reserved,
        partition=PartitionRow(**{**row, "grace_s": 0.0, "priority_tier": 1, **partition}),
    )


def site(**fields: object) -> SlurmSite:
    return make_site({"partition": "idle", "mode": "preemptible", **fields}, "test")


def only(seen: View, given_site: SlurmSite) -> idle_nodes.Candidate:
    (candidate,) = idle_nodes.candidates(seen, given_site)
    return candidate


def test_a_node_that_no_job_is_known_to_want_has_no_known_end() -> None:
    candidate = only(view(node("n1")), site())
    assert candidate.safe
    assert candidate.until_s is None
    assert candidate.limit_s == 4 * 3600
    assert only(view(node("n1")), site(mode="backfill")).limit_s == 1800


@pytest.mark.parametrize(
    "flag",
    ["DRAIN", "RESERVED", "MAINTENANCE", "NOT_RESPONDING", "POWERED_DOWN", "COMPLETING", "FAIL", "SOMETHING_NEW"],
)
def test_a_node_in_an_unusual_state_is_not_claimed(flag: str) -> None:
    candidate = only(view(node("n1", "idle", flag)), site())
    assert not candidate.safe
    assert flag in candidate.why


def test_nodes_that_are_not_idle_are_not_candidates() -> None:
    assert idle_nodes.candidates(view(node("n1", "allocated"), node("n2", "mixed"), node("n3", "down")), site()) == []


def test_the_window_before_a_planned_job_becomes_the_pilots_limit() -> None:
    planned = view(node("n1", "idle", "PLANNED"), jobs=(waiting("7", 4, on="n[1-4]", at_s=NOW_S + 600),))
    candidate = only(planned, site())
    assert candidate.safe
    assert candidate.until_s == NOW_S + 600
    assert candidate.limit_s == 540, "whole minutes, half a minute before the end"
    assert "job 7" in candidate.why


def test_a_node_with_too_short_a_window_is_not_claimed() -> None:
    soon = view(node("n1", "idle", "PLANNED"), jobs=(waiting("7", 4, on="n[1-4]", at_s=NOW_S + 150),))
    candidate = only(soon, site())
    assert not candidate.safe
    assert candidate.why == "job 7 wants it in 150 s"


def test_a_node_planned_for_an_unknown_time_is_not_claimed() -> None:
    assert not only(view(node("n1", "idle", "PLANNED")), site()).safe


def test_a_reservation_ends_the_window_and_a_past_one_does_not() -> None:
    future = ReservationRow(name="maint", nodes="n[1-2]", start_s=NOW_S + 900, end_s=NOW_S + 9000)
    past = ReservationRow(name="old", nodes="n1", start_s=NOW_S - 900, end_s=NOW_S - 10)
    candidate = only(view(node("n1"), reserved=(future, past)), site())
    assert candidate.until_s == NOW_S + 900
    running = ReservationRow(name="now", nodes="n1", start_s=NOW_S - 5, end_s=NOW_S + 600)
    assert not only(view(node("n1"), reserved=(running,)), site()).safe


def test_the_partitions_limit_and_the_sites_lists() -> None:
    assert only(view(node("n1"), max_time_s=1000.0), site()).limit_s == 960
    assert not only(view(node("n1"), up=False), site()).safe
    found = {
        c.node: c.safe for c in idle_nodes.candidates(view(node("n1"), node("n2"), node("n3")), site(nodes="n[1-2]"))
    }
    assert found == {"n1": True, "n2": True, "n3": False}
    assert not only(view(node("n1")), site(exclude="n[1-4]")).safe


@given(
    starts=st.lists(st.floats(-100, 1e5), max_size=4),
    margin=st.floats(0, 300),
    least=st.floats(60, 600),
)
def test_no_pilot_outlives_what_is_known_of_its_window(starts: list[float], margin: float, least: float) -> None:
    jobs = tuple(waiting(str(i), 1, on="n1", at_s=NOW_S + start) for i, start in enumerate(starts))
    rules = site(margin_s=margin, least_hole_s=least)
    candidate = only(view(node("n1", "idle", "PLANNED"), jobs=jobs), rules)
    if candidate.safe:
        first_s = min(starts)
        assert least <= candidate.limit_s <= first_s - margin + 1e-6
        assert candidate.limit_s % 60 == 0
        assert candidate.until_s == NOW_S + first_s


def held(*pilots: JobRow, first_end_s: float | None = None) -> dict[str, held_nodes.Held]:
    return {row.nodes: held_nodes.Held(row, first_end_s) for row in pilots}


def test_a_drained_node_and_a_preempted_pilot_are_left_in_every_mode() -> None:
    for mode in ("preemptible", "backfill"):
        leave = held_nodes.wanted(view(node("n1", "allocated", "DRAIN")), held(pilot("n1")), site(mode=mode))
        assert list(leave) == ["n1"]
        moved = held(pilot("n1", NOW_S + 30), first_end_s=NOW_S + 1200)
        assert list(held_nodes.wanted(view(node("n1", "allocated")), moved, site(mode=mode))) == ["n1"]


def test_backfill_leaves_nodes_for_jobs_that_would_wait_for_them() -> None:
    ours = held(pilot("n1"), pilot("n2"), pilot("n3"))
    busy = (node("n1", "allocated"), node("n2", "allocated"), node("n3", "allocated"), node("n4"))
    fits = view(*busy, jobs=(waiting("7", 3),))
    assert len(held_nodes.wanted(fits, ours, site(mode="backfill"))) == 2, "one is idle, two more are needed"
    assert held_nodes.wanted(fits, ours, site()) == {}, "a preemptible pilot is told by Slurm"
    too_large = view(*busy, jobs=(waiting("7", 9),))
    assert held_nodes.wanted(too_large, ours, site(mode="backfill")) == {}, "our leaving would not help it"
    not_for_nodes = view(
        *busy, jobs=(waiting("7", 1, reason="Dependency"), waiting("8", 1, reason="QOSMaxJobsPerUser"))
    )
    assert held_nodes.wanted(not_for_nodes, ours, site(mode="backfill")) == {}


def test_backfill_leaves_nodes_on_which_a_job_is_planned_after_our_pilots() -> None:
    ours = held(pilot("n1", NOW_S + 1200))
    waits_for_us = view(node("n1", "allocated"), jobs=(waiting("7", 1, on="n1", at_s=NOW_S + 1200),))
    assert list(held_nodes.wanted(waits_for_us, ours, site(mode="backfill"))) == ["n1"]
    waits_for_others = view(node("n1", "allocated"), jobs=(waiting("7", 2, on="n[1-2]", at_s=NOW_S + 7200),))
    assert held_nodes.wanted(waits_for_others, ours, site(mode="backfill")) == {}


@pytest.mark.parametrize(
    ("begins_in_s", "pilot_ends_in_s", "leaves"),
    [
        (300, 1200, False),
        (60, 1200, True),  # the next look, 30 s from now, would be 30 s before it
        (-5, 1200, True),
        (-900, 1200, False),  # it has ended
        (60, 30, False),  # claimed when the reservation was known
    ],
)
def test_a_held_node_is_left_before_a_reservation_begins(
    begins_in_s: float, pilot_ends_in_s: float, leaves: bool
) -> None:
    reserved = ReservationRow(
        name="maint", nodes="n[1-2]", start_s=NOW_S + begins_in_s, end_s=NOW_S + begins_in_s + 600
    )
    seen = view(node("n1", "allocated"), node("n3", "allocated"), reserved=(reserved,))
    ours = held(pilot("n1", NOW_S + pilot_ends_in_s), pilot("n3"))
    for mode in ("preemptible", "backfill"):
        leave = held_nodes.wanted(seen, ours, site(mode=mode))
        assert leave == ({"n1": "the reservation maint begins there"} if leaves else {})
    rare = held_nodes.wanted(seen, ours, site(), next_look_s=290.0)
    assert list(rare) == (["n1"] if leaves or begins_in_s == 300 else []), "looks are rarer with many controllers"


def test_the_caps() -> None:
    assert limits.most_nodes(8, 0, None, 1.0) == 8
    assert limits.most_nodes(8, 2, None, 0.5) == 5
    assert limits.most_nodes(1, 0, None, 0.9) == 0
    assert limits.most_nodes(8, 0, 3, 1.0) == 3
    found = [idle_nodes.Candidate(node=f"n{i}", safe=i != 2, why="", limit_s=60.0 * i) for i in range(1, 5)]
    assert [c.node for c in idle_nodes.choose(found, (), 2)] == ["n4", "n3"]
    assert [c.node for c in idle_nodes.choose(found, {"n1"}, 2)] == ["n1", "n4"], "what is offered stays"
    assert idle_nodes.choose(found, (), 0) == []


def test_quiet_hours() -> None:
    work = limits.QuietHours.parse("Mon-Fri 08:00-18:00")
    assert work.hold(datetime(2026, 11, 20, 8, 0))
    assert not work.hold(datetime(2026, 11, 20, 18, 0))
    assert not work.hold(datetime(2026, 11, 21, 12, 0)), "a Saturday"
    night = limits.QuietHours.parse("Fri 22:00-06:00")
    assert night.hold(datetime(2026, 11, 20, 23, 0))
    assert night.hold(datetime(2026, 11, 21, 5, 59))
    assert not night.hold(datetime(2026, 11, 20, 5, 0))
    assert limits.QuietHours.parse("00:00-24:00").hold(datetime(2026, 11, 22, 3, 0))


@pytest.mark.parametrize("text", ["", "Mon", "Mon 8", "Mon 25:00-26:00", "Mon 08:00-08:00", "Foo 08:00-09:00", "a b c"])
def test_quiet_hours_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"quiet hours|same minute"):
        limits.QuietHours.parse(text)


def test_the_pause_grows_until_a_pilot_succeeds() -> None:
    pause = limits.Pause(after=2, first_s=60.0)
    assert not pause.failed(0.0, "a")
    assert pause.failed(1.0, "sbatch refuses")
    assert pause.holds(60.0)
    assert not pause.holds(61.5)
    assert pause.reason == "sbatch refuses"
    assert pause.failed(62.0, "again")
    assert pause.until_s == 62.0 + 120.0
    pause.succeeded()
    assert not pause.holds(63.0)
    assert not pause.failed(64.0, "once")


def test_submissions_per_minute() -> None:
    rate = limits.SubmissionRate(2)
    rate.note(0.0)
    rate.note(30.0)
    assert rate.left(59.0) == 0
    assert rate.left(60.0) == 1
    assert rate.left(90.0) == 2
