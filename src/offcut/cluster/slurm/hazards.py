"""Finds what in a Slurm's setup costs its queue, its users or its operators something while pilots run. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from offcut.cluster.slurm import modes
from offcut.cluster.slurm.account_limits import submit_limit, wall_limit
from offcut.cluster.slurm.preemptors import exempt_time
from offcut.cluster.slurm.records import expand
from offcut.cluster.slurm.site import SlurmSite
from offcut.cluster.slurm.slurm_config import SlurmSetup

_POWER_STEP = "leave_idle_after_s in the site's rules (/etc/offcut/site.toml) lets them go; so do max_nodes, exclude."


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the table: `note` for what costs something, `bad` for what keeps offcut from working."""

    what: str
    verdict: Literal["good", "note", "bad"]
    found: str
    next_step: str = ""


def hazards(setup: SlurmSetup, site: SlurmSite) -> list[Fact]:
    """Return what its operators and users should know before pilots run as `site` says, each with what to do."""
    shown = modes.preemption(setup, site.partition, site.qos, site.account).shown
    preemptible = site.mode == "preemptible" or (site.mode is None and shown)
    return [
        *(_preemption(setup, site) if preemptible else ()),
        *_reservations(setup),
        *_after_a_pilot(setup),
        *_power(setup, site),
        *_accelerators(setup, site),
        *_limits(setup, site),
    ]


def _preemption(setup: SlurmSetup, site: SlurmSite) -> Iterator[Fact]:
    exempt = exempt_time(setup, site)
    if exempt.s:
        found = (
            f"no main job preempts a pilot until a pilot has run for {exempt.s:g} s (PreemptExemptTime of "
            f"{exempt.of}); pilots leave for one at the next look ({site.interval_s:g} s)"
        )
        yield Fact("exempt time", "note", found, "Ask for PreemptExemptTime=00:00:00, or a QOS of pilots that has it.")
    ours = setup.partitions[site.partition]
    equal = [row.name for row in setup.sharing(site.partition) if row.priority_tier == ours.priority_tier]
    if equal or (ours.allow_accounts, ours.allow_qos) == ("ALL", "ALL"):
        names = ", ".join(f"'{name}'" for name in (ours.name, *equal))
        found = f"jobs of others in {names} do not preempt pilots; these leave at the next look ({site.interval_s:g} s)"
        yield Fact("same tier", "note", found, "Restrict the partition (AllowAccounts), or shorten interval_s.")
    if not setup.sees_all_jobs:
        found = "PrivateData=jobs hides which nodes waiting jobs are planned on"
        yield Fact(
            "private jobs", "note", found, "Windows have no known end: more pilots are preempted than necessary."
        )


def _reservations(setup: SlurmSetup) -> Iterator[Fact]:
    if not setup.sees_all("reservations"):
        found = "PrivateData=reservations hides those of others, so pilots do not leave before one begins"
        yield Fact("private reservations", "note", found, "Ask for PrivateData without it, or set a short longest_s.")


def _after_a_pilot(setup: SlurmSetup) -> Iterator[Fact]:
    epilog = setup.config.get("Epilog", "(null)")
    if epilog not in ("(null)", ""):
        found = f"an Epilog runs after each pilot before its node is free ({epilog})"
        yield Fact("epilog", "note", found, "Main jobs that want a claimed node wait for it, too: measure it.")
    wait = setup.config.get("CompleteWait", "0 sec").split(" ")[0]
    if wait.isdigit() and int(wait) > 0:
        found = f"while a pilot is ending, Slurm starts nothing for up to {wait} s (CompleteWait)"
        yield Fact("complete wait", "note", found, "Ask for CompleteWait=0.")


def _power(setup: SlurmSetup, site: SlurmSite) -> Iterator[Fact]:
    after = setup.config.get("SuspendTime", "INFINITE").split(" ")[0]
    if after.isdigit() and setup.config.get("SuspendProgram", "(null)") != "(null)":
        found = f"nodes that are idle for {after} s are powered down; those that pilots hold are not"
        yield Fact("power saving", "note", found, _POWER_STEP)
    cloud = [node for node in expand(setup.partitions[site.partition].nodes) if _is_cloud(setup, node)]
    if cloud:
        yield Fact("cloud", "note", f"{_folded(cloud)}: of the cloud, so never claimed", "They cost while used.")


def _accelerators(setup: SlurmSetup, site: SlurmSite) -> Iterator[Fact]:
    kinds: dict[str, list[str]] = {}
    given, never = frozenset(expand(site.nodes)), frozenset(expand(site.exclude))
    for node in expand(setup.partitions[site.partition].nodes):
        row = setup.nodes.get(node)
        if row is not None and not row.cloud and node not in never and (not given or node in given):
            kinds.setdefault(row.gres.partition("(")[0], []).append(node)
    with_any = {gres: nodes for gres, nodes in kinds.items() if gres}
    found = "; ".join(f"{_folded(nodes)} with {gres or 'none'}" for gres, nodes in kinds.items())
    if with_any and not site.gres:
        largest = max(with_any, key=lambda gres: len(with_any[gres]))
        ask = f"Set gres = '{largest}' and nodes = '{_folded(with_any[largest])}'"
        said = f"pilots take these nodes without their accelerators: {found}"
        yield Fact("accelerators", "note", said, f"{ask}, or exclude these nodes.")
    elif site.gres and len(kinds) > 1:
        said = f"nodes differ in their accelerators, and all pilots ask for {site.gres}: {found}"
        yield Fact("accelerators", "note", said, "Name those that have them in nodes.")
    elif site.gres and not with_any and kinds:
        said = f"pilots ask for {site.gres}, and no node has any"
        yield Fact("accelerators", "note", said, "Remove gres from the site's file.")


def _limits(setup: SlurmSetup, site: SlurmSite) -> Iterator[Fact]:
    row = setup.association(site.account, site.partition)
    if row is not None:
        given = {"MaxJobs": row.max_jobs, "MaxSubmitJobs": row.max_submit_jobs, "GrpTRES": row.group_tres or None}
        limits = [f"{name}={value}" for name, value in given.items() if value is not None]
        limits += [f"those of the account '{one.name}'" for one in setup.lineage(row.account) if one.limited]
        if limits:
            found = f"pilots use up limits of the account '{row.account}': {', '.join(limits)}"
            step = "Pilots leave for jobs that pend on one, at the next query. An account of its own avoids it."
            yield Fact("limits", "note", found, step)
    submit = submit_limit(setup, site)
    if submit is not None:
        found = f"{submit.of} limits submitted jobs to {submit.jobs}: pilots use at most half of that"
        yield Fact("submitted jobs", "note", found, "An account or QOS of its own avoids it.")
    wall = wall_limit(setup, site)
    if wall is not None and wall.max_s < site.longest:
        yield Fact("wall time", "note", f"{wall.of} limits pilots to {wall.max_s / 60:g} min (MaxWall)")


def _is_cloud(setup: SlurmSetup, node: str) -> bool:
    row = setup.nodes.get(node)
    return row is not None and row.cloud


def _folded(nodes: list[str]) -> str:
    return str(NodeSet.fromlist(nodes, resolver=RESOLVER_NOGROUP))
