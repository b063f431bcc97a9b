"""The waiting jobs for which pilots leave: arrays, other partitions, the same tier, jobs that it does not help.

Pure.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from offcut.cluster.slurm import held_nodes
from offcut.cluster.slurm.records import JobRow, NodeRow, PartitionRow, ReservationRow, View
from offcut.cluster.slurm.site import SlurmSite, make_site
from offcut.cluster.slurm.waiting_jobs import PILOT_NICE, MadeWay, nodes_to_leave

NOW_S = 1_000_000.0
PILOTS_END_S = NOW_S + 1200


def job(
    id: str = "7", nodes: int = 1, *, partition: str = "main", reason: str = "Priority", **fields: object
) -> JobRow:
    given = {"id": id, "state": "PENDING", "user": "u", "partitions": (partition,), "node_count": nodes}
    return JobRow(**{**given, "reason": reason, **fields})


def partition(name: str, nodes: str, tier: int = 1) -> PartitionRow:
    return PartitionRow(
        name=name, up=True, nodes=nodes, max_time_s=None, preempt_mode="CANCEL", grace_s=0.0, priority_tier=tier
    )


PARTITIONS = {
    "main": partition("main", "n[1-4]", tier=10),
    "idle": partition("idle", "n[1-4]"),
    "also": partition("also", "n[1-4]"),
    "gpu": partition("gpu", "g[1-4]", tier=10),
    "half": partition("half", "n[1-2],g[1-4]", tier=10),
}


def view(*jobs: JobRow, idle: tuple[str, ...] = (), time_s: float = NOW_S) -> View:
    names = [f"n{i}" for i in range(1, 5)]
    nodes = {name: NodeRow(name=name, state="idle" if name in idle else "allocated") for name in names}
    return View(time_s=time_s, nodes=nodes, waiting=jobs, own={}, partition=PARTITIONS["idle"], partitions=PARTITIONS)


def site(mode: str = "backfill") -> SlurmSite:
    return make_site({"partition": "idle", "mode": mode}, "test")


def leaves(seen: View, *held: str, mode: str = "backfill", made_way: MadeWay | None = None) -> list[str]:
    def pilot(name: str) -> JobRow:
        return job(f"p-{name}", partition="idle", state="RUNNING", nodes=1, end_s=PILOTS_END_S)

    ours = {name: held_nodes.Held(replace(pilot(name), nodes=name)) for name in held}
    return sorted(held_nodes.wanted(seen, ours, site(mode), made_way))


def test_an_array_gets_a_node_for_each_task_that_fits() -> None:
    # As Slurm shows `--array=1-30` over four nodes of ours: one row, with the plan of the last task that it tested.
    planned = job("35_[1-30]", tasks=30, scheduled="n4", start_s=PILOTS_END_S + 1500, reason="Resources")
    assert leaves(view(planned), "n1", "n2", "n3", "n4") == ["n1", "n2", "n3", "n4"]
    assert len(leaves(view(job(tasks=3)), "n1", "n2", "n3", "n4")) == 3
    assert len(leaves(view(job(tasks=3), idle=("n4",)), "n1", "n2", "n3")) == 2, "one task uses the idle node"
    assert len(leaves(view(job(tasks=3, nodes=2)), "n1", "n2", "n3")) == 2, "one task of two nodes fits"
    assert leaves(view(job(tasks=3, nodes=5)), "n1", "n2", "n3", "n4") == []


def test_once_slurm_has_begun_to_preempt_pilots_leave_for_all_tasks_of_an_array() -> None:
    seen = view(job("35_[1-30]", tasks=30, reason="Resources"))
    held = {f"n{i}": held_nodes.Held(job(f"p{i}", partition="idle", state="RUNNING")) for i in (1, 2, 3)}
    assert held_nodes.wanted(seen, held, site("preemptible")) == {}, "Slurm will preempt them"
    assert set(held_nodes.wanted(seen, held, site("preemptible"), preempted=True)) == {"n1", "n2", "n3"}


def test_the_node_of_a_pilot_that_slurm_is_ending_is_used_first() -> None:
    held = {f"n{i}": held_nodes.Held(job(f"p{i}", partition="idle", state="RUNNING")) for i in (1, 2, 3)}
    held["n2"] = held_nodes.Held(replace(held["n2"].pilot, state="COMPLETING"))
    for tasks, left in ((1, 0), (2, 1), (9, 2)):
        leave = held_nodes.wanted(view(job(tasks=tasks)), held, site("preemptible"), preempted=True)
        assert len(leave) == left
        assert "n2" not in leave


def test_jobs_of_partitions_without_our_nodes_are_ignored() -> None:
    seen = view(*(job(str(i), partition="gpu") for i in range(12)))
    assert leaves(seen, "n1", "n2") == []
    assert leaves(view(job(nodes=2, partition="half")), "n1", "n2", "n3", "n4") == ["n1", "n2"]
    assert leaves(view(job(nodes=2, partition="half"), idle=("n3", "n4")), "n1", "n2") == ["n1", "n2"], (
        "it cannot use the idle nodes"
    )
    assert leaves(view(job(partition="hidden")), "n1") == ["n1"], "a partition that is not shown may have any node"


def test_a_job_that_requires_a_drained_node_is_ignored() -> None:
    assert leaves(view(job(reason="ReqNodeNotAvail", required="n4")), "n1", "n2") == []
    assert leaves(view(job(reason="Resources", required="n2")), "n1", "n2") == ["n2"]


def test_a_job_of_a_higher_priority_uses_what_is_idle_first() -> None:
    assert leaves(view(job("1"), job("2"), idle=("n4",)), "n1", "n2") == ["n1"]
    assert leaves(view(job("1", nodes=3), job("2"), idle=("n4",)), "n1", "n2") == ["n1", "n2"], "none is left for job 2"


def test_a_job_that_is_planned_elsewhere_and_could_start_now_on_our_nodes() -> None:
    later = {"reason": "Resources", "start_s": NOW_S + 600, "end_s": NOW_S + 4200}  # its limit is an hour
    elsewhere = job(scheduled="n4", **later)
    assert len(leaves(view(elsewhere), "n1", "n2", mode="backfill")) == 1
    assert len(leaves(view(job(partition="idle", scheduled="n4", **later)), "n1", mode="preemptible")) == 1
    assert leaves(view(elsewhere, idle=("n3",)), "n1", "n2") == [], "it starts on the idle node"
    after_us = {**later, "start_s": PILOTS_END_S + 600}
    assert leaves(view(job(nodes=4, scheduled="n[1-4]", **after_us)), "n1", "n2") == [], "it waits for others, too"


def test_a_job_that_is_planned_on_nodes_of_another_kind_may_not_be_able_to_use_ours() -> None:
    gpus = job(scheduled="n4", reason="Resources", start_s=NOW_S + 600, end_s=NOW_S + 4200)
    ours = dict.fromkeys(("n1", "n2"), PILOTS_END_S)

    def leave(kinds: dict[str, str]) -> list[str]:
        return sorted(nodes_to_leave(view(gpus), ours, (), MadeWay(), kinds=kinds))

    assert leave({"n1": "cpu", "n2": "cpu", "n3": "gpu", "n4": "gpu"}) == []
    assert leave({"n1": "cpu", "n2": "gpu", "n3": "gpu", "n4": "gpu"}) == ["n2"]
    assert leave({}) == ["n1"]


def test_a_job_that_would_delay_one_of_a_higher_priority_would_not_start_on_our_nodes() -> None:
    first = job("1", nodes=4, scheduled="n[1-4]", reason="Resources", start_s=NOW_S + 1800, end_s=NOW_S + 9000)

    def second(limit_s: float) -> JobRow:
        return job("2", scheduled="n4", start_s=NOW_S + 9000, end_s=NOW_S + 9000 + limit_s)

    assert leaves(view(first, second(3600)), "n1") == []
    assert leaves(view(first, second(1800)), "n1") == ["n1"], "it ends before"
    assert leaves(view(second(3600), first), "n1") == ["n1"], "the one planned there has a lower priority"
    assert leaves(view(first, second(1800), idle=("n3",)), "n1") == [], "the idle node lasts long enough"
    reserved = ReservationRow(name="maint", nodes="n1", start_s=NOW_S + 1800, end_s=NOW_S + 9000)
    assert leaves(replace(view(second(3600)), reservations=(reserved,)), "n1", "n2") == ["n2"]


def test_a_preemptible_pilot_leaves_for_jobs_that_cannot_preempt_it() -> None:
    assert leaves(view(job(partition="main")), "n1", mode="preemptible") == [], "Slurm preempts the pilot for it"
    assert leaves(view(job(partition="idle")), "n1", mode="preemptible") == ["n1"]
    assert leaves(view(job(partition="also")), "n1", mode="preemptible") == ["n1"], "the same tier"
    both = job(partitions=("also", "main"))
    assert leaves(view(both), "n1", mode="preemptible") == [], "one of its partitions preempts"


@pytest.mark.parametrize("mode", ["preemptible", "backfill"])
def test_pilots_do_not_leave_for_pilots_of_another_controller(mode: str) -> None:
    assert leaves(view(job(partition="idle", nice=PILOT_NICE)), "n1", mode=mode) == []
    assert leaves(view(job(partition="idle", nice=PILOT_NICE - 1)), "n1", mode=mode) == ["n1"]


def test_a_job_that_leaving_does_not_help_is_ignored_for_a_while() -> None:
    made_way = MadeWay(patience_s=60.0, ignore_s=600.0)

    def after(seconds: float, *jobs: JobRow) -> list[str]:
        return leaves(view(*jobs, time_s=NOW_S + seconds), "n1", made_way=made_way)

    assert after(0, job("7")) == ["n1"]
    assert after(30, job("7")) == ["n1"], "the scheduler may not have looked yet"
    assert after(90, job("7")) == [], "it did not start: it cannot use our nodes"
    assert after(90, job("8")) == ["n1"], "another job may; and job 7 does not wait any more"
    assert after(100, job("7")) == ["n1"]
    assert after(200, job("7")) == []
    assert after(100 + 661, job("7")) == ["n1"], "tried again after ten minutes"
