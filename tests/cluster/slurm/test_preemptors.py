"""For which jobs Slurm preempts pilots at once, and which ones pilots leave for by themselves. All pure."""

from __future__ import annotations

import pytest

from offcut.cluster.slurm import held_nodes, text
from offcut.cluster.slurm.preemptors import preemptors
from offcut.cluster.slurm.records import JobRow, NodeRow, View
from offcut.cluster.slurm.site import make_site
from offcut.cluster.slurm.slurm_config import SlurmSetup

PARTITIONS = text.read_partitions(
    "PartitionName=main Nodes=n1 PriorityTier=10 PreemptMode=OFF State=UP\n"
    "PartitionName=idle Nodes=n1 PriorityTier=1 PreemptMode=CANCEL State=UP\n"
)
QOS = text.read_qos("low||cancel|||||\nhigh|low|cluster|||||\nexempt||cancel|00:02:00||||\nnormal||cluster|||||\n")


def leaves(job_qos: str, partition: str, *, qos: str = "low", **config: str) -> bool:
    setup = SlurmSetup(config=config, partitions=PARTITIONS, qos=QOS)
    site = make_site({"partition": "idle", "mode": "preemptible", "qos": qos}, "test")
    job = JobRow(
        id="7", state="PENDING", user="u", qos=job_qos, partitions=(partition,), node_count=1, reason="Resources"
    )
    pilot = JobRow(id="1", state="RUNNING", user="me", partitions=("idle",), node_count=1, nodes="n1", end_s=9000.0)
    view = View(
        time_s=0.0,
        nodes={"n1": NodeRow(name="n1", state="allocated")},
        waiting=(job,),
        own={},
        partition=PARTITIONS["idle"],
        partitions=PARTITIONS,
    )
    held = {"n1": held_nodes.Held(pilot)}
    return bool(held_nodes.wanted(view, held, site, preemptors=preemptors(setup, site)))


@pytest.mark.parametrize(
    ("qos", "partition", "by", "leave"),
    [
        ("normal", "main", "partition_prio", False),
        ("normal", "idle", "partition_prio", True),
        ("high", "idle", "qos", False),
        ("high", "main", "qos", False),
        ("normal", "main", "qos", True),  # a higher tier preempts nothing where the QOS decides
    ],
)
def test_pilots_leave_for_jobs_that_do_not_preempt_them(qos: str, partition: str, by: str, leave: bool) -> None:
    assert leaves(qos, partition, PreemptType=f"preempt/{by}") == leave


def test_pilots_that_are_exempt_for_a_while_leave_for_every_job() -> None:
    by_tier = {"PreemptType": "preempt/partition_prio"}
    assert leaves("normal", "main", PreemptExemptTime="00:02:00", **by_tier)
    assert leaves("normal", "main", qos="exempt", **by_tier)
    assert not leaves("normal", "main", PreemptExemptTime="00:00:00", **by_tier)
