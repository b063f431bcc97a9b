"""Surveys what a site's Slurm allows, and which mode fits it. It only reads, and submits nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from offcut.cluster.slurm import modes, text
from offcut.cluster.slurm.commands import CommandError, Commands, check_installed
from offcut.cluster.slurm.hazards import Fact, hazards
from offcut.cluster.slurm.records import PartitionRow
from offcut.cluster.slurm.site import make_site
from offcut.cluster.slurm.site_rules import SYSTEM_FILE, SiteRulesFile
from offcut.cluster.slurm.slurm_config import SlurmSetup, read_setup
from offcut.errors import ClusterError, InputError


async def survey(commands: Commands) -> list[Fact]:
    """Return version, scheduler, accounting, each partition, and the advice. InputError if Slurm is not there."""
    check_installed()
    version = text.read_version(await commands.run(("sinfo", "--version")))
    setup = await read_setup(commands)
    shown = await commands.run(("sinfo", "--noheader", "--format=%R|%D|%T"))
    facts = [
        _version(version),
        await _json(commands, version),
        *_scheduler(setup.config),
        *_accounting(setup.config),
        *(_partition(row, _nodes_by_state(shown, row.name), setup) for row in setup.partitions.values()),
        _advice(setup),
    ]
    partition = _advised(setup)
    return facts if partition is None else [*facts, *hazards(setup, make_site({"partition": partition.name}, "doctor"))]


def _version(version: tuple[int, int]) -> Fact:
    found = f"Slurm {version[0]}.{version[1]:02d}"
    if version < (20, 11):
        return Fact("version", "note", found, "Tested with 22.05 and the schema of 23.11; report what does not work.")
    return Fact("version", "good", found)


async def _json(commands: Commands, version: tuple[int, int]) -> Fact:
    try:
        await commands.run(("squeue", "--json", "--user=nobody"))
    except CommandError as error:
        return Fact("JSON", "note", f"not here ({error.said[:60]})", "Leave reading = 'text', the default.")
    schema = "data_parser (23.02 and later)" if version >= (23, 2) else "openapi (22.05 and before)"
    return Fact("JSON", "good", f"squeue --json, {schema}; text is the default, because it is faster to read")


def _scheduler(config: Mapping[str, str]) -> list[Fact]:
    backfill = config.get("SchedulerType", "") == "sched/backfill"
    preempt = config.get("PreemptType", "preempt/none")
    given = config.get("SchedulerParameters", "(null)")
    return [
        Fact(
            "scheduler",
            "good" if backfill else "note",
            f"{config.get('SchedulerType', '?')}, {given[:80]}",
            "" if backfill else "Without sched/backfill no end of a window is known.",
        ),
        Fact(
            "preemption",
            "good" if preempt != "preempt/none" else "note",
            f"{preempt}, {config.get('PreemptMode', '?')}; KillWait {config.get('KillWait', '?')}",
            "" if preempt != "preempt/none" else "Only mode 'backfill' fits.",
        ),
    ]


def _accounting(config: Mapping[str, str]) -> list[Fact]:
    storage, enforce = config.get("AccountingStorageType", ""), config.get("AccountingStorageEnforce", "none")
    return [
        Fact(
            "accounting", "good", f"{storage}, enforced: {enforce}", "Set account and qos." if "qos" in enforce else ""
        )
    ]


def _nodes_by_state(shown: str, partition: str) -> str:
    rows = [line.split("|") for line in shown.splitlines()]
    return ", ".join(f"{row[1]} {row[2]}" for row in rows if len(row) == 3 and row[0] == partition) or "no nodes"


def _mode(setup: SlurmSetup, partition: str) -> str:
    return "preemptible" if modes.preemption(setup, partition).shown else "backfill"


def _partition(row: PartitionRow, nodes: str, setup: SlurmSetup) -> Fact:
    limit = "no limit" if row.max_time_s is None else f"at most {row.max_time_s / 3600:g} h"
    words = [nodes, limit, f"tier {row.priority_tier}", f"preempt {row.preempt_mode}", f"grace {row.grace_s:g} s"]
    if row.allow_accounts != "ALL":
        words.append(f"accounts {row.allow_accounts}")
    if row.allow_qos != "ALL":
        words.append(f"QOS {row.allow_qos}")
    mode = _mode(setup, row.name)
    verdict: Literal["good", "note"] = "good" if row.up else "note"
    return Fact(f"partition {row.name}", verdict, "; ".join(words), f"mode {mode}" if row.up else "It is not up.")


def _advised(setup: SlurmSetup) -> PartitionRow | None:
    up = [row for row in setup.partitions.values() if row.up]
    fit = [row for row in up if _mode(setup, row.name) == "preemptible"]
    return min(fit, key=lambda row: row.priority_tier) if fit else next(iter(up), None)


def _advice(setup: SlurmSetup) -> Fact:
    row = _advised(setup)
    if row is None:
        return Fact("advice", "bad", "no partition is up", "Ask your operators.")
    mode = _mode(setup, row.name)
    if mode == "backfill" and not setup.sees_all_jobs:
        said = "no mode fits: nothing preempts pilots, and PrivateData=jobs hides the jobs that wait"
        return Fact("advice", "bad", said, "Ask your operators for a preemptible partition.")
    command = f"offcut up --cluster slurm --partition {row.name} --mode {mode}"
    return Fact("advice", "good", f"mode '{mode}' in partition '{row.name}'", f"Try: {command} --dry-run")


async def rules_fact() -> Fact:
    """Return what the administrators of this site allow all controllers."""
    file = SiteRulesFile.locate()
    try:
        await file.open()
    except InputError as error:
        return Fact("site's rules", "bad", error.what, error.next_step)
    if file.path is None:
        return Fact("site's rules", "good", f"none ({SYSTEM_FILE} is not there)")
    said = file.rules.model_dump(exclude_defaults=True)
    found = f"{file.path}: " + (", ".join(f"{name} = {value}" for name, value in said.items()) or "all defaults")
    against = file.rules.against_claims(datetime.now())
    step = f"No node is held now: {against}." if against else ""
    return Fact("site's rules", "note" if against else "good", found, step)


async def survey_or_fact(commands: Commands) -> list[Fact]:
    """Return the survey, or the one fact that prevents it."""
    try:
        return await survey(commands)
    except ClusterError as error:
        return [Fact("Slurm", "bad", error.what, "Is slurmctld up? Try: scontrol ping")]
