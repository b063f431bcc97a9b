"""Jobs that pend on a limit of an account, a user or a QOS: pilots that use it up leave. Pure.

The reasons are those that a Slurm 22.05 gives.
"""

from __future__ import annotations

import pytest

from offcut.cluster.slurm import text
from offcut.cluster.slurm.limit_relief import LimitRelief
from offcut.cluster.slurm.records import JobRow, PartitionRow, View
from offcut.cluster.slurm.slurm_config import SlurmSetup
from offcut.cluster.slurm.waiting_jobs import PILOT_NICE, MadeWay

NOW_S = 1_000_000.0


def partition(name: str, qos: str = "") -> PartitionRow:
    return PartitionRow(
        name=name, up=True, nodes="n[1-4]", max_time_s=None, preempt_mode="OFF", grace_s=0, priority_tier=1, qos=qos
    )


def job(reason: str, id: str = "7", **fields: object) -> JobRow:
    given = {"user": "ann", "account": "physics", "qos": "normal", "partitions": ("main",), "node_count": 1}
    return JobRow(**{"id": id, "state": "PENDING", "reason": reason, **given, **fields})


def pilots(count: int, **fields: object) -> dict[str, JobRow]:
    row = {"state": "RUNNING", "partitions": ("idle",), "nice": PILOT_NICE, **fields}
    return {f"n{i}": job("None", f"p{i}", **row) for i in range(1, count + 1)}


def view(*jobs: JobRow, time_s: float = NOW_S, qos: str = "") -> View:
    partitions = {"main": partition("main", qos), "idle": partition("idle", qos)}
    return View(time_s=time_s, nodes={}, waiting=jobs, own={}, partition=partitions["idle"], partitions=partitions)


def leaves(waiting: JobRow, count: int = 4, *, partition_qos: str = "", **pilot: object) -> int:
    return len(LimitRelief().decide(view(waiting, qos=partition_qos), pilots(count, **pilot)).leave)


@pytest.mark.parametrize(
    ("reason", "whose", "leave"),
    [
        ("AssocGrpNodeLimit", {"user": "bob"}, 1),
        ("AssocGrpCpuLimit", {"user": "bob"}, 1),
        ("AssocGrpNodeLimit", {"account": "chemistry"}, 0),
        ("AssocMaxJobsLimit", {}, 1),
        ("AssocMaxJobsLimit", {"user": "bob"}, 0),
        ("QOSMaxJobsPerUserLimit", {}, 1),
        ("QOSMaxJobsPerUserLimit", {"user": "bob"}, 0),
        ("QOSMaxNodePerUserLimit", {"qos": "high"}, 0),
        ("QOSGrpNodeLimit", {"user": "bob", "account": "chemistry"}, 1),
        ("QOSGrpNodeLimit", {"qos": "high"}, 0),
        ("MaxNodePerAccount", {"user": "bob"}, 1),
        ("MaxNodePerAccount", {"account": "chemistry"}, 0),
        ("Resources", {}, 0),
        ("BeginTime", {}, 0),
        ("Dependency", {}, 0),
    ],
)
def test_whose_pilots_count_against_which_limit(reason: str, whose: dict[str, str], leave: int) -> None:
    assert leaves(job(reason, **whose)) == leave


def test_the_qos_of_a_partition_counts_too() -> None:
    assert leaves(job("QOSGrpNodeLimit", qos="high"), partition_qos="shared") == 1


def test_an_account_above_both_that_has_a_limit() -> None:
    accounts = "lab|root|||node=3|||\nphysics|lab||||||\nchemistry|lab||||||\nmaths|root||||||\nroot|||||||\n"
    setup = SlurmSetup(config={}, partitions={}, accounts=text.read_accounts(accounts))
    relief = LimitRelief(limited_accounts=setup.limited_accounts)
    colleague = job("AssocGrpNodeLimit", user="bob", account="chemistry")
    assert len(relief.decide(view(colleague), pilots(4)).leave) == 1
    assert relief.decide(view(colleague), pilots(4, account="maths")).leave == {}, "no limit above both"


def test_as_many_leave_as_the_job_needs() -> None:
    assert leaves(job("AssocGrpNodeLimit", node_count=3)) == 3
    assert leaves(job("AssocGrpNodeLimit", tasks=2)) == 2
    assert leaves(job("AssocMaxJobsLimit", node_count=3)) == 1, "one job fewer is enough"
    assert leaves(job("AssocGrpNodeLimit", node_count=9)) == 4
    assert leaves(job("AssocGrpNodeLimit", nice=PILOT_NICE)) == 0, "another controller's pilot"


def test_nothing_is_claimed_until_it_has_started_and_a_job_that_it_does_not_help_is_ignored() -> None:
    relief = LimitRelief(MadeWay(patience_s=60.0, ignore_s=600.0))
    waits = job("AssocGrpNodeLimit")
    first = relief.decide(view(waits), pilots(2))
    assert (len(first.leave), first.waits) == (1, True)
    assert relief.decide(view(job("Priority"), time_s=NOW_S + 5), pilots(1)).waits, "it waits for the scheduler"
    assert not relief.decide(view(time_s=NOW_S + 10), pilots(1)).waits, "it has started"
    relief.decide(view(waits, time_s=NOW_S + 20), pilots(2))
    late = relief.decide(view(waits, time_s=NOW_S + 90), pilots(2))
    assert (late.leave, late.waits) == ({}, False)
