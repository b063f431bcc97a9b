"""What doctor and a starting controller say about a Slurm's setup. All pure."""

from __future__ import annotations

import pytest

from offcut.cluster.slurm import idle_nodes, text
from offcut.cluster.slurm.hazards import Fact, hazards
from offcut.cluster.slurm.records import NodeRow, NodeSetup, PartitionRow, View
from offcut.cluster.slurm.site import make_site
from offcut.cluster.slurm.slurm_config import SlurmSetup

MAIN = "PartitionName=main Nodes=n[1-4] PriorityTier=10 PreemptMode=OFF State=UP"
IDLE = "PartitionName=idle Nodes=n[1-4] PriorityTier=1 PreemptMode=CANCEL State=UP AllowAccounts=pilots"
QOS = "normal||cluster|||||\nlow||cancel|00:03:00||||\n"


def slurm(*, partitions: str = "", nodes: dict[str, NodeSetup] | None = None, accounts: str = "", **config: str):
    return SlurmSetup(
        config={"PreemptType": "preempt/partition_prio", **config},
        partitions=text.read_partitions(f"{MAIN}\n{IDLE}\n{partitions}"),
        nodes=nodes or {},
        qos=text.read_qos(QOS),
        associations=tuple(text.read_associations(accounts)),
        user="ann",
    )


def found(setup: SlurmSetup, **site: object) -> dict[str, Fact]:
    return {fact.what: fact for fact in hazards(setup, make_site({"partition": "idle", **site}, "test"))}


def test_a_setup_as_the_docs_describe_it_costs_nothing() -> None:
    # As `scontrol show config` of a Slurm 22.05.8 prints them where nobody has set them.
    plain = {"PreemptExemptTime": "00:00:00", "Epilog": "(null)", "CompleteWait": "0 sec", "SuspendTime": "INFINITE"}
    assert found(slurm(**plain, SuspendProgram="(null)", PrivateData="none")) == {}


@pytest.mark.parametrize(
    ("config", "what", "says"),
    [
        ({"PreemptExemptTime": "00:02:00"}, "exempt time", "until a pilot has run for 120 s"),
        ({"Epilog": "/etc/slurm/epilog.sh"}, "epilog", "before its node is free (/etc/slurm/epilog.sh)"),
        ({"CompleteWait": "32 sec"}, "complete wait", "for up to 32 s"),
        ({"SuspendTime": "300 sec", "SuspendProgram": "/off"}, "power saving", "idle for 300 s are powered down"),
        ({"PrivateData": "jobs"}, "private jobs", "hides which nodes waiting jobs are planned on"),
        ({"PrivateData": "reservations"}, "private reservations", "pilots do not leave before one begins"),
    ],
)
def test_settings_of_slurm_conf(config: dict[str, str], what: str, says: str) -> None:
    facts = found(slurm(**config))
    assert list(facts) == [what]
    assert facts[what].verdict == "note"
    assert says in facts[what].found
    assert facts[what].next_step


def test_the_exempt_time_of_the_qos_goes_first_and_does_not_matter_in_backfill() -> None:
    exempt = slurm(PreemptExemptTime="00:02:00")
    assert "for 180 s (PreemptExemptTime of the QOS 'low')" in found(exempt, qos="low")["exempt time"].found
    assert found(exempt, mode="backfill") == {}


def test_other_users_of_the_partition_and_of_its_tier() -> None:
    also = slurm(partitions="PartitionName=also Nodes=n4 PriorityTier=1 PreemptMode=CANCEL State=UP")
    assert "jobs of others in 'idle', 'also' do not preempt pilots" in found(also)["same tier"].found
    open_to_all = slurm(partitions=IDLE.replace("AllowAccounts=pilots", ""))
    assert "jobs of others in 'idle' do not preempt pilots" in found(open_to_all)["same tier"].found


def test_accelerators_that_pilots_would_hold_and_not_use() -> None:
    gpus = {"n1": NodeSetup(gres="gpu:4(S:0-1)"), "n2": NodeSetup(gres="gpu:4"), "n3": NodeSetup(), "n4": NodeSetup()}
    fact = found(slurm(nodes=gpus))["accelerators"]
    assert "n[1-2] with gpu:4; n[3-4] with none" in fact.found
    assert fact.next_step == "Set gres = 'gpu:4' and nodes = 'n[1-2]', or exclude these nodes."
    assert found(slurm(nodes=gpus), gres="gpu:4", nodes="n[1-2]") == {}
    assert found(slurm(nodes=gpus), exclude="n[1-2]") == {}
    assert "nodes differ" in found(slurm(nodes=gpus), gres="gpu:4")["accelerators"].found
    assert "no node has any" in found(slurm(nodes=gpus), gres="gpu:4", nodes="n[3-4]")["accelerators"].found


def test_limits_of_the_account() -> None:
    facts = found(slurm(accounts="physics||low|3|4|node=6|00:20:00\n"), qos="normal")
    assert (
        facts["limits"].found
        == "pilots use up limits of the account 'physics': MaxJobs=3, MaxSubmitJobs=4, GrpTRES=node=6"
    )
    assert facts["submitted jobs"].found.startswith("the user 'ann' (MaxSubmitJobs) limits submitted jobs to 4")
    assert facts["wall time"].found == "the account 'physics' limits pilots to 20 min (MaxWall)"


def test_nodes_of_the_cloud_are_told_and_never_claimed() -> None:
    cloud = slurm(nodes={"n1": NodeSetup(cloud=True), "n2": NodeSetup()})
    assert found(cloud)["cloud"].found == "n1: of the cloud, so never claimed"
    partition = PartitionRow(
        name="idle", up=True, nodes="n1", max_time_s=None, preempt_mode="CANCEL", grace_s=0.0, priority_tier=1
    )
    node = NodeRow(name="n1", state="idle", flags=frozenset({"CLOUD"}))
    view = View(time_s=0.0, nodes={"n1": node}, waiting=(), own={}, partition=partition)
    (candidate,) = idle_nodes.candidates(view, make_site({"partition": "idle"}, "test"))
    assert (candidate.safe, candidate.why) == (False, "its state is idle+CLOUD")
