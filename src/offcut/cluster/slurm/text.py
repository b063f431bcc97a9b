"""Reads what Slurm's commands print as text. Their environment must have SLURM_TIME_FORMAT=%s.

A line that cannot be read raises ClusterError, because an incomplete snapshot is worse than none.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from offcut.cluster.slurm.records import (
    AccountRow,
    AssociationRow,
    JobRow,
    NodeRow,
    NodeSetup,
    PartitionRow,
    QosRow,
    ReservationRow,
)
from offcut.errors import ClusterError

#: Partition, node, state: sinfo --Node.
NODE_FORMAT = "%N|%T"
#: Without fields that a user can write freely: a job's name or comment may hold a line feed.
JOB_FORMAT = "%i|%T|%P|%D|%N|%n|%Y|%S|%e|%u|%r|%K|%y"
#: The fields of a row that begins with a mark: account, QOS, and the job's name.
_NAMED = "|%a|%q|%j"
#: Fields of a QOS, an account and an association: sacctmgr --parsable2.
QOS_FORMAT = "Name,Preempt,PreemptMode,PreemptExemptTime,MaxWall,MaxSubmitPU,MaxSubmitPA,GrpSubmit"
ACCOUNT_FORMAT = "Account,ParentName,GrpSubmit,GrpJobs,GrpTRES,GrpTRESMins,GrpTRESRunMins,GrpWall"
ASSOCIATION_FORMAT = "Account,Partition,DefaultQOS,MaxJobs,MaxSubmitJobs,GrpTRES,MaxWall"

#: Marks that sinfo appends to a state.
_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
    "+": "CLOUD",
}
#: Compound states that sinfo has words of its own for.
_WORDS = {
    "planned": ("idle", "PLANNED"),
    "reserved": ("idle", "RESERVED"),
    "maint": ("idle", "MAINTENANCE"),
    "drained": ("idle", "DRAIN"),
    "draining": ("allocated", "DRAIN"),
    "completing": ("allocated", "COMPLETING"),
    "failing": ("allocated", "FAIL"),
    "fail": ("idle", "FAIL"),
    "blocked": ("idle", "BLOCKED"),
    "powered_down": ("idle", "POWERED_DOWN"),
    "powering_down": ("idle", "POWERING_DOWN"),
    "powering_up": ("idle", "POWERING_UP"),
    "rebooting": ("idle", "REBOOT_ISSUED"),
    "perfctrs": ("idle", "PERFCTRS"),
}


def read_nodes(text: str) -> dict[str, NodeRow]:
    """Read the output of `sinfo --noheader --Node --format=NODE_FORMAT`."""
    nodes = {}
    for line in text.splitlines():
        name, bar, shown = line.partition("|")
        state = shown.rstrip("".join(_SUFFIXES))
        if not bar or not name or not state:
            raise ClusterError(f"sinfo printed a line that cannot be read: '{line[:80]}'.")
        flags = {_SUFFIXES[mark] for mark in shown[len(state) :]}
        if state in _WORDS:
            state, flag = _WORDS[state]
            flags.add(flag)
        nodes[name] = NodeRow(name=name, state=state, flags=frozenset(flags))
    return nodes


def read_jobs(text: str) -> list[JobRow]:
    """Read the output of `squeue --noheader --format=JOB_FORMAT`."""
    return [_job(line.split("|"), line) for line in text.splitlines()]


def named_job_format(mark: str) -> str:
    """Return a format of squeue that shows names, too. No name holds `mark`, because it was just made up at random."""
    return f"{mark}|{JOB_FORMAT}{_NAMED}"


def read_named_jobs(text: str, mark: str) -> list[JobRow]:
    """Read the output of `squeue --noheader --format=named_job_format(mark)`. A name may hold anything but the mark."""
    before, *rows = text.split(f"{mark}|")
    if before.strip():
        raise ClusterError(f"squeue printed a line that cannot be read: '{before[:80]}'.")
    jobs = []
    for row in rows:
        *fields, account, qos, name = row.split("|", 15)
        jobs.append(replace(_job(fields, row), account=account, qos=_or_empty(qos), name=name.removesuffix("\n")))
    return jobs


def _job(fields: list[str], line: str) -> JobRow:
    if len(fields) != 13 or not fields[0] or not fields[3].isdigit():
        raise ClusterError(f"squeue printed a line that cannot be read: '{line[:80]}'.")
    job, state, partitions, count, nodes, required, scheduled, start, end, user, reason, array, nice = fields
    return JobRow(
        id=job,
        state=state,
        user=user,
        partitions=tuple(partitions.split(",")),
        node_count=int(count),
        tasks=count_tasks(array) if state == "PENDING" else 1,
        nice=int(nice) if re.fullmatch(r"-?\d+", nice) else 0,
        nodes=_or_empty(nodes),
        required=_or_empty(required),
        scheduled=_or_empty(scheduled),
        start_s=_time(start),
        end_s=_time(end),
        reason=reason,
    )


def count_tasks(text: str) -> int:
    """Count the tasks of an array that may start at once: `5-30`, `1,3,7-21:2%4` (4 at a time); 1 for `N/A`."""
    numbers, _, at_once = text.partition("%")
    count = 0
    for first, last, step in re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?", numbers):
        count += 1 + max(0, int(last or first) - int(first)) // max(1, int(step or 1))
    return max(1, min(count, int(at_once)) if at_once.isdigit() else count)


def read_reservations(text: str) -> list[ReservationRow]:
    """Read the output of `scontrol show reservation --oneliner`."""
    found = []
    for fields in _records(text, "ReservationName"):
        start_s, end_s = _time(fields.get("StartTime", "")), _time(fields.get("EndTime", ""))
        if start_s is None or end_s is None:
            raise ClusterError(f"The reservation {fields['ReservationName']} has no start or end that can be read.")
        nodes = _or_empty(fields.get("Nodes", ""))
        found.append(ReservationRow(name=fields["ReservationName"], nodes=nodes, start_s=start_s, end_s=end_s))
    return found


def read_partitions(text: str) -> dict[str, PartitionRow]:
    """Read the output of `scontrol show partition --oneliner`."""
    found = {}
    for fields in _records(text, "PartitionName"):
        name = fields["PartitionName"]
        found[name] = PartitionRow(
            name=name,
            up=fields.get("State") == "UP",
            nodes=_or_empty(fields.get("Nodes", "")),
            max_time_s=duration_s(fields.get("MaxTime", "UNLIMITED")),
            preempt_mode=fields.get("PreemptMode", "OFF"),
            grace_s=float(fields.get("GraceTime", "0")),
            priority_tier=int(fields.get("PriorityTier", "1")),
            allow_accounts=fields.get("AllowAccounts", "ALL"),
            allow_qos=fields.get("AllowQos", "ALL"),
            qos=_or_empty(fields.get("QoS", "")),
        )
    return found


def read_node_setups(text: str) -> dict[str, NodeSetup]:
    """Read the output of `scontrol show node --oneliner`."""
    found = {}
    for line in text.splitlines():
        # The first of each name counts: free text (Comment, Reason) comes last and may look like a field.
        name, gres, state, features = (
            re.search(rf"(?:^|\s){key}=(\S*)", line) for key in ("NodeName", "Gres", "State", "ActiveFeatures")
        )
        if name is not None and state is not None:
            found[name[1]] = NodeSetup(
                cloud="CLOUD" in state[1].rstrip("*").split("+"),
                gres=_or_empty(gres[1]) if gres else "",
                features=frozenset(filter(None, _or_empty(features[1]).split(","))) if features else frozenset(),
            )
    return found


def read_qos(text: str) -> dict[str, QosRow]:
    """Read the output of `sacctmgr --noheader --parsable2 show qos format=QOS_FORMAT`."""
    rows = (
        QosRow(
            name=name,
            preempts=frozenset(filter(None, preempts.split(","))),
            preempt_mode=mode or "cluster",
            exempt_s=duration_s(exempt),
            max_wall_s=duration_s(wall),
            max_submit_jobs=(_count(per_user), _count(per_account), _count(together)),
        )
        for name, preempts, mode, exempt, wall, per_user, per_account, together in _parsable(text, 8)
    )
    return {row.name: row for row in rows}


def read_accounts(text: str) -> dict[str, AccountRow]:
    """Read the output of `sacctmgr --noheader --parsable2 show association where user= format=ACCOUNT_FORMAT`."""
    rows = (
        AccountRow(name=name, parent=parent, limited=any((submit, *limits)), max_submit_jobs=_count(submit))
        for name, parent, submit, *limits in _parsable(text, 8)
    )
    return {row.name: row for row in rows}


def read_associations(text: str) -> list[AssociationRow]:
    """Read the output of `sacctmgr --noheader --parsable2 show association format=ASSOCIATION_FORMAT`."""
    return [
        AssociationRow(
            account=account,
            partition=partition,
            default_qos=default_qos,
            max_jobs=_count(jobs),
            max_submit_jobs=_count(submit),
            group_tres=tres,
            max_wall_s=duration_s(wall),
        )
        for account, partition, default_qos, jobs, submit, tres, wall in _parsable(text, 7)
    ]


def _count(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _parsable(text: str, fields: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        words = line.split("|")
        if len(words) != fields:
            raise ClusterError(f"sacctmgr printed a line that cannot be read: '{line[:80]}'.")
        yield words


def read_config(text: str) -> dict[str, str]:
    """Read the output of `scontrol show config`: names to values."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip(): value.strip() for name, mark, value in pairs if mark}


def read_version(text: str) -> tuple[int, int]:
    """Read the output of `sinfo --version`, e.g. `slurm 22.05.8`, as (22, 5)."""
    numbers = text.strip().rpartition(" ")[2].split(".")
    if len(numbers) < 2 or not all(number.isdigit() for number in numbers[:2]):
        raise ClusterError(f"sinfo gave a version that cannot be read: '{text.strip()[:60]}'.")
    return int(numbers[0]), int(numbers[1])


def duration_s(text: str) -> float | None:
    """Read `[days-]hours:minutes:seconds` and its shorter forms; None for UNLIMITED, INFINITE, NONE."""
    if text in ("UNLIMITED", "INFINITE", "NONE", "(null)", "N/A", ""):
        return None
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    try:
        numbers = [int(part) for part in parts]
        # Without days the last part is seconds; with them the first is hours.
        weights = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
        return 86400.0 * int(days or 0) + sum(w * n for w, n in zip(weights, numbers, strict=False))
    except ValueError:
        raise ClusterError(f"Slurm gave a duration that cannot be read: '{text[:40]}'.") from None


def _records(text: str, first: str) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        if not line.startswith(f"{first}="):
            continue  # "No reservations in the system"
        words = shlex.split(line, posix=False) if '"' in line else line.split()
        yield {name: value for name, mark, value in (word.partition("=") for word in words) if mark}


def _or_empty(text: str) -> str:
    return "" if text in ("(null)", "N/A", "None") else text


def _time(text: str) -> float | None:
    if text in ("N/A", "Unknown", "NONE", "None", ""):
        return None
    if not text.isdigit():
        raise ClusterError(f"Slurm gave a time that cannot be read: '{text[:40]}'; it ignores SLURM_TIME_FORMAT.")
    return float(text)
