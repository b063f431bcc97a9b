"""Judges which mode fits a site: whether Slurm is shown to preempt pilots, and how long one may run. Pure.

`offcut up`, its dry run and `offcut doctor` all call this.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcut.cluster.slurm.account_limits import submit_limit, wall_limit
from offcut.cluster.slurm.records import PartitionRow
from offcut.cluster.slurm.site import SlurmSite
from offcut.cluster.slurm.slurm_config import SlurmSetup
from offcut.errors import InputError

#: Values of PreemptMode that free a pilot's node. A pilot is submitted with --no-requeue, so REQUEUE cancels it.
#: SUSPEND does not: it leaves the pilot's memory on the node.
_FREES_THE_NODE = frozenset({"CANCEL", "REQUEUE"})


@dataclass(frozen=True, slots=True)
class Preemption:
    """Whether Slurm is shown to preempt pilots for other jobs, and why. `to_set` says what would change it."""

    shown: bool
    why: str
    to_set: str = ""


def preemption(setup: SlurmSetup, partition: str, qos: str = "", account: str = "") -> Preemption:
    """Judge whether jobs of another partition or QOS preempt a pilot in `partition`, with `qos` or our default QOS."""
    kind = setup.config.get("PreemptType", "preempt/none")
    if kind == "preempt/partition_prio":
        return _by_partition(setup, setup.partitions[partition])
    if kind == "preempt/qos":
        return _by_qos(setup, partition, qos, account)
    to_set = "PreemptType=preempt/partition_prio and PreemptMode=CANCEL in slurm.conf"
    return Preemption(False, f"this Slurm preempts nothing (PreemptType={kind})", to_set)


def _by_partition(setup: SlurmSetup, ours: PartitionRow) -> Preemption:
    if not _frees(ours.preempt_mode):
        why = f"the partition '{ours.name}' has PreemptMode={ours.preempt_mode}"
        return Preemption(False, why, "PreemptMode=CANCEL for this partition")
    above = [row.name for row in setup.sharing(ours.name) if row.priority_tier > ours.priority_tier]
    if not above:
        why = f"no partition with a PriorityTier above {ours.priority_tier} shares nodes with '{ours.name}'"
        return Preemption(False, why, "a higher PriorityTier for the partitions of the main queue")
    return Preemption(True, f"jobs in {', '.join(above)} preempt it (PreemptMode={ours.preempt_mode})")


def _by_qos(setup: SlurmSetup, partition: str, given: str, account: str) -> Preemption:
    if not setup.qos:
        return Preemption(False, "sacctmgr shows no QOS (is slurmdbd up?)", "a QOS that others preempt")
    ours = setup.qos_of(given, account, partition)
    if ours is None:
        why = f"there is no QOS '{given}'" if given else "it is not known which QOS pilots would have"
        return Preemption(False, why, "qos in the site's file")
    mode = setup.config.get("PreemptMode", "OFF") if ours.preempt_mode.lower() == "cluster" else ours.preempt_mode
    if not _frees(mode):
        return Preemption(False, f"the QOS '{ours.name}' has PreemptMode={mode}", "PreemptMode=cancel for this QOS")
    above = [row.name for row in setup.qos.values() if ours.name in row.preempts]
    if not above:
        why = f"no QOS preempts the QOS '{ours.name}'"
        return Preemption(False, why, f"Preempt={ours.name} for the QOS of the main queue (sacctmgr)")
    return Preemption(True, f"jobs with QOS {', '.join(above)} preempt the QOS '{ours.name}' (PreemptMode={mode})")


def _frees(preempt_mode: str) -> bool:
    return not _FREES_THE_NODE.isdisjoint(preempt_mode.upper().split(","))


def fit(site: SlurmSite, setup: SlurmSetup) -> SlurmSite:
    """Return the site with a mode that is safe on this Slurm, and no pilot longer than accounting allows.

    A site without a mode gets `preemptible` where preemption is shown, and `backfill` elsewhere.

    Raises:
        InputError: no such partition; mode `preemptible` was asked for and preemption is not shown; in `backfill` we
            cannot see who waits.
    """
    if site.partition not in setup.partitions:
        raise InputError(
            f"Slurm has no partition '{site.partition}'.",
            next_step=f"It has: {', '.join(sorted(setup.partitions)) or 'none'}.",
        )
    found = preemption(setup, site.partition, site.qos, site.account)
    if site.mode == "preemptible" and not found.shown:
        raise InputError(
            f"With mode 'preemptible', main jobs would wait for the end of pilots: {found.why}.",
            next_step=f"Set mode = 'backfill', or ask your operators for {found.to_set}.",
        )
    mode = site.mode or ("preemptible" if found.shown else "backfill")
    if mode == "backfill" and not setup.sees_all_jobs:
        raise InputError(
            "Mode 'backfill' cannot work here: PrivateData=jobs hides the jobs of others, so that pilots would not "
            "leave for those that wait.",
            next_step="Ask your operators for a preemptible partition, or for the admin level Operator (sacctmgr).",
        )
    fitted = site.model_copy(update={"mode": mode, "max_nodes": _most_pilots(setup, site)})
    limit = wall_limit(setup, site)
    if limit is None or limit.max_s >= fitted.longest:
        return fitted
    if limit.max_s < 60.0:
        raise InputError(
            f"No pilot is possible: {limit.of} allows {limit.max_s:g} s (MaxWall).",
            next_step="Set another qos or account in the site's file.",
        )
    return fitted.model_copy(update={"longest_s": limit.max_s})


def _most_pilots(setup: SlurmSetup, site: SlurmSite) -> int | None:
    """Return how many pilots there may be at most.

    At most half of what a limit of submitted jobs allows: an sbatch that is refused cannot be seen, so nothing could
    make room for it.
    """
    limit = submit_limit(setup, site)
    if limit is None:
        return site.max_nodes
    most = max(1, limit.jobs // 2)
    return most if site.max_nodes is None else min(most, site.max_nodes)
