"""Which mode fits a site: no `preemptible` unless preemption is shown, no blind `backfill`. All pure.

The texts of sacctmgr were printed by a Slurm 22.05.8 with slurmdbd.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from offcut.cluster.slurm import modes, text
from offcut.cluster.slurm.account_limits import submit_limit
from offcut.cluster.slurm.site import SlurmSite, make_site
from offcut.cluster.slurm.slurm_config import SlurmSetup
from offcut.errors import ClusterError, InputError

QOS = """normal||cluster|||||
low||cancel||00:20:00|||
high|low,normal|cluster|00:02:00||||
susp||suspend|||||
"""
ASSOCIATIONS = "physics||low|3|4|node=6|\n"
BY_TIER = {"PreemptType": "preempt/partition_prio", "PreemptMode": "CANCEL"}
BY_QOS = {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}


def partition(name: str, tier: int, nodes: str = "n[1-4]", mode: str = "CANCEL", **more: str) -> str:
    fields = {"Nodes": nodes, "PriorityTier": tier, "PreemptMode": mode, "State": "UP", **more}
    return f"PartitionName={name} " + " ".join(f"{key}={value}" for key, value in fields.items())


def slurm(config: dict[str, str], *partitions: str, qos: str = "", associations: str = "", **who: str) -> SlurmSetup:
    lines = partitions or (partition("main", 10, mode="OFF"), partition("idle", 1))
    return SlurmSetup(
        config=config,
        partitions=text.read_partitions("\n".join(lines)),
        qos=text.read_qos(qos),
        associations=tuple(text.read_associations(associations)),
        **{"user": "ann", **who},
    )


def site(**fields: object) -> SlurmSite:
    return make_site({"partition": "idle", **fields}, "test")


def test_a_partition_that_a_higher_tier_preempts() -> None:
    found = modes.preemption(slurm(BY_TIER), "idle")
    assert found.shown
    assert found.why == "jobs in main preempt it (PreemptMode=CANCEL)"
    assert modes.fit(site(), slurm(BY_TIER)).mode == "preemptible"
    assert modes.fit(site(mode="backfill"), slurm(BY_TIER)).mode == "backfill"


@pytest.mark.parametrize(
    ("setup", "why"),
    [
        (slurm({"PreemptType": "preempt/none"}), "this Slurm preempts nothing"),
        (slurm({}), "this Slurm preempts nothing"),
        (slurm(BY_TIER, partition("main", 1), partition("idle", 1)), "no partition with a PriorityTier above 1"),
        (slurm(BY_TIER, partition("gpu", 10, "g[1-4]"), partition("idle", 1)), "shares nodes with 'idle'"),
        (slurm(BY_TIER, partition("main", 10, State="DOWN"), partition("idle", 1)), "no partition with a PriorityTier"),
        (slurm(BY_TIER, partition("main", 10), partition("idle", 1, mode="OFF")), "'idle' has PreemptMode=OFF"),
        (slurm(BY_TIER, partition("main", 10), partition("idle", 1, mode="GANG,SUSPEND")), "PreemptMode=GANG,SUSPEND"),
        (slurm(BY_QOS), "sacctmgr shows no QOS"),
        (slurm(BY_QOS, qos=QOS), "it is not known which QOS pilots would have"),
    ],
)
def test_without_shown_preemption_the_mode_is_backfill_or_refused(setup: SlurmSetup, why: str) -> None:
    assert modes.fit(site(), setup).mode == "backfill"
    with pytest.raises(InputError, match="With mode 'preemptible', main jobs would wait") as refused:
        modes.fit(site(mode="preemptible"), setup)
    assert why in refused.value.what
    assert refused.value.next_step.startswith("Set mode = 'backfill', or ask your operators for ")


@pytest.mark.parametrize(
    ("given", "shown", "why"),
    [
        ({}, True, "jobs with QOS high preempt the QOS 'low' (PreemptMode=cancel)"),
        ({"qos": "normal"}, True, "jobs with QOS high preempt the QOS 'normal' (PreemptMode=REQUEUE)"),
        ({"qos": "high"}, False, "no QOS preempts the QOS 'high'"),
        ({"qos": "susp"}, False, "the QOS 'susp' has PreemptMode=suspend"),
        ({"qos": "none"}, False, "there is no QOS 'none'"),
        ({"account": "chemistry"}, False, "it is not known which QOS pilots would have"),
    ],
)
def test_preemption_by_qos(given: dict[str, str], shown: bool, why: str) -> None:
    found = modes.preemption(slurm(BY_QOS, qos=QOS, associations=ASSOCIATIONS), "idle", **given)
    assert (found.shown, found.why) == (shown, why)


def test_backfill_is_refused_where_the_jobs_of_others_are_hidden() -> None:
    hidden = {"PreemptType": "preempt/none", "PrivateData": "accounts,jobs", "SlurmUser": "slurm(64030)"}
    for given in (site(), site(mode="backfill")):
        with pytest.raises(InputError, match="PrivateData=jobs hides the jobs of others"):
            modes.fit(given, slurm(hidden))
    for who in ({"user": "root"}, {"user": "slurm"}, {"admin_level": "Operator"}):
        assert modes.fit(site(), slurm(hidden, **who)).mode == "backfill"
    assert modes.fit(site(), slurm({**BY_TIER, "PrivateData": "jobs"})).mode == "preemptible", "Slurm sees them"


def test_a_pilot_is_no_longer_than_the_least_limit_of_accounting() -> None:
    limited = slurm(BY_TIER, qos=QOS, associations=ASSOCIATIONS)
    assert modes.fit(site(), limited).longest == 1200, "MaxWall of the default QOS 'low'"
    assert modes.fit(site(longest_s=600), limited).longest == 600
    assert modes.fit(site(qos="normal"), limited).longest == 4 * 3600
    lines = partition("main", 10, mode="OFF"), partition("idle", 1, QoS="low")
    assert modes.fit(site(qos="normal"), slurm(BY_TIER, *lines, qos=QOS)).longest == 1200, "the partition's QOS"
    two = ASSOCIATIONS + "chemistry||normal||||\n"
    assert modes.fit(site(), slurm(BY_TIER, qos=QOS, associations=two)).longest == 4 * 3600, "not known which account"
    assert modes.fit(site(), slurm(BY_TIER, qos=QOS, associations=two, default_account="physics")).longest == 1200
    accounts = "physics|||||node=6|00:10:00\nphysics|idle||||node=6|00:05:00\n"
    assert modes.fit(site(), slurm(BY_TIER, associations=accounts)).longest == 300, "the partition's own association"
    with pytest.raises(InputError, match="the QOS 'tiny' allows 30 s"):
        modes.fit(site(qos="tiny"), slurm(BY_TIER, qos="tiny||cluster||00:00:30|||\n"))


def test_a_partition_that_is_not_there() -> None:
    with pytest.raises(InputError, match="Slurm has no partition 'spare'") as refused:
        modes.fit(site(partition="spare"), slurm(BY_TIER))
    assert refused.value.next_step == "It has: idle, main."


def test_nodes_of_scontrol_and_broken_lines_of_sacctmgr() -> None:
    shown = "NodeName=n1 Gres=gpu:a100:4(S:0-1) OS=Linux 6.1 #1 SMP State=IDLE+CLOUD+POWERED_DOWN Weight=1\n"
    shown += "NodeName=n2 Gres=(null) State=ALLOCATED* Comment=\"it's odd Reason=x State=IDLE+CLOUD Gres=gpu:1\n"
    nodes = text.read_node_setups(shown)
    assert (nodes["n1"].cloud, nodes["n1"].gres) == (True, "gpu:a100:4(S:0-1)")
    assert (nodes["n2"].cloud, nodes["n2"].gres) == (False, "")
    with pytest.raises(ClusterError, match="sacctmgr printed a line that cannot be read"):
        text.read_qos("normal|cluster\n")


@pytest.mark.parametrize(("limit", "given", "most"), [("", None, None), ("9", None, 4), ("1", None, 1), ("9", 2, 2)])
def test_pilots_leave_room_for_jobs_that_their_user_submits(limit: str, given: int | None, most: int | None) -> None:
    setup = slurm(BY_TIER, associations=f"physics||normal||{limit}||\n")
    assert modes.fit(site(max_nodes=given), setup).max_nodes == most


@pytest.mark.parametrize(
    ("qos", "accounts", "limit", "of"),
    [
        ("normal||cluster|||9||", "", 9, "the QOS 'normal' (MaxSubmitJobsPerUser)"),
        ("normal||cluster||||8|", "", 8, "the QOS 'normal' (MaxSubmitJobsPerAccount)"),
        ("normal||cluster|||9||7", "", 7, "the QOS 'normal' (GrpSubmitJobs)"),
        ("low||cluster|||3||", "physics|lab||||||\nlab|root|6|||||\n", 6, "the account 'lab' (GrpSubmitJobs)"),
        (
            "normal||cluster|||||",
            "physics|lab|5|||||\nlab|physics|6|||||\n",
            5,
            "the account 'physics'",
        ),
    ],
)
def test_pilots_leave_room_below_limits_of_qos_and_accounts(qos: str, accounts: str, limit: int, of: str) -> None:
    setup = replace(
        slurm(BY_TIER, qos=qos, associations="physics||normal||||\n"), accounts=text.read_accounts(accounts)
    )
    found = submit_limit(setup, site())
    assert found is not None
    assert (found.jobs, found.of.startswith(of)) == (limit, True)
    assert modes.fit(site(), setup).max_nodes == limit // 2
