"""Slurm's accounting as text: `sacct -P -a --format=JobID,Submit,Start,End,NNodes,Timelimit,State,NodeList`.

Any columns in any order; the ones used are named in `_NEEDED` and `_USEFUL`. Quirks that real dumps have: job steps
between the jobs, `|` inside a job's name or its submit line (the row has more fields than the header), a line break
inside a name (a row comes in pieces), jobs cancelled before they started, jobs that still ran when the dump was taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import combinations_with_replacement
from pathlib import Path

from offcut.errors import InputError
from offcut.traces.batch_log import BatchLog, count_note
from offcut.traces.hostlist import expand_hosts
from offcut.traces.slurm_record import SlurmRecord, log_of_records
from offcut.traces.text_file import read_text

_NEEDED = ("JobID", "Submit", "Start", "End")
_COUNTS = ("NNodes", "AllocNodes")
#: Columns of free text, whose values may contain a `|`.
_FREE_TEXT = (
    "AdminComment",
    "Comment",
    "Constraints",
    "Container",
    "JobName",
    "SubmitLine",
    "SystemComment",
    "WorkDir",
)
_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|\d+|Unknown|None|"
_TIME = r"(\d+-)?(\d+:)?\d+:\d+(\.\d+)?|\d+|UNLIMITED|Partition_Limit|INVALID|"
#: A line with more surplus fields than this is not a row; the number of ways to place them grows fast.
_MAX_SURPLUS = 8
#: Patterns of the columns' values, which show where the surplus fields of a row belong.
_LOOKS = {
    name: re.compile(pattern)
    for pattern, names in {
        r"\d+([_+.].*)?": ("JobID", "JobIDRaw"),
        _STAMP: ("Submit", "Eligible", "Start", "End"),
        _TIME: ("Elapsed", "Timelimit", "CPUTime", "TotalCPU"),
        r"\d*": ("NNodes", "AllocNodes", "NCPUS", "AllocCPUS", "ReqCPUS", "UID", "GID", "TimelimitRaw", "ElapsedRaw"),
        r"([A-Z_]+( by \d+)?\+?)?": ("State",),
        r"(\d+:\d+)?": ("ExitCode", "DerivedExitCode"),
        r"None assigned|[^ ]*": ("NodeList",),
    }.items()
    for name in names
}


def read_sacct(path: str | Path) -> BatchLog:
    """Read `sacct -P` (or `-p`) output, gzipped or not.

    Times without a zone are read as UTC.

    Raises:
        InputError: the file cannot be read; it names the file, the line and the field.
    """
    lines = read_text(path).splitlines()
    header = lines[0].split("|") if lines else []
    trailing = bool(header) and header[-1] == ""
    if trailing:
        header = header[:-1]
        lines = [line.removesuffix("|") for line in lines]
    missing = [name for name in _NEEDED if name not in header]
    if missing or not any(name in header for name in (*_COUNTS, "NodeList")):
        raise InputError(
            f"{path}, line 1: the header has no column {', '.join(missing) or 'NNodes'}.",
            next_step="Take it with: sacct -a -P --format=JobID,Submit,Start,End,NNodes,Timelimit,State,NodeList",
        )
    fragments: list[int] = []
    records = [
        _record(row, f"{path}, line {number}")
        for number, row in _rows(lines, header, fragments)
        if "." not in row["JobID"]
    ]
    broken = f"Pieces of broken rows, left out (the first in line {min(fragments, default=0)})"
    return log_of_records(str(path), records, count_note(len(fragments), broken))


def _rows(lines: list[str], header: list[str], fragments: list[int]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows with their line numbers; lines that do not make a row are added to `fragments`."""
    pending: list[str] = []
    pending_line = 0
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        fields = line.split("|")
        if len(fields) >= len(header):
            row = _align(fields, header)
            if row is not None:
                fragments += [pending_line] if pending else []
                pending = []
                yield number, row
                continue
        # A piece of a row: a value with a line break in it. It joins the pieces before it.
        joined = [*pending[:-1], pending[-1] + " " + fields[0], *fields[1:]] if pending else fields
        row = _align(joined, header) if len(joined) >= len(header) else None
        if row is not None:
            pending = []
            yield pending_line or number, row
        elif len(joined) < len(header):
            pending_line = pending_line if pending else number
            pending = joined
        else:
            fragments.append(pending_line if pending else number)
            pending = []
    fragments += [pending_line] if pending else []


def _align(fields: list[str], header: list[str]) -> dict[str, str] | None:
    """Assign the fields to their columns; surplus fields join free-text columns. None: they cannot be assigned."""
    surplus = len(fields) - len(header)
    free = [i for i, name in enumerate(header) if name in _FREE_TEXT]
    if surplus > _MAX_SURPLUS:
        return None
    for takers in combinations_with_replacement(free, surplus):
        row: list[str] = []
        at = 0
        for i in range(len(header)):
            width = 1 + takers.count(i)
            row.append("|".join(fields[at : at + width]))
            at += width
        if all(_LOOKS[name].fullmatch(value) for name, value in zip(header, row, strict=True) if name in _LOOKS):
            return dict(zip(header, row, strict=True))
    return None


def _record(row: dict[str, str], where: str) -> SlurmRecord:
    listed = row.get("NodeList", "")
    try:
        hosts = expand_hosts(listed) if listed not in ("", "None assigned", "Unknown") else ()
    except InputError as error:
        raise InputError(f"{where}, field NodeList: {error.what}", next_step=error.next_step) from None
    counts = [row[name] for name in _COUNTS if row.get(name)]
    return SlurmRecord(
        id=row["JobID"],
        submit_s=_stamp(row["Submit"], f"{where}, field Submit"),
        start_s=_stamp(row["Start"], f"{where}, field Start"),
        end_s=_stamp(row["End"], f"{where}, field End"),
        requested_s=_duration(row),
        nodes=int(counts[0]) if counts else len(hosts),
        hosts=hosts,
        where=where,
    )


def _stamp(text: str, where: str) -> float | None:
    """Return the seconds since 1970 of `2021-10-05T11:26:12` (read as UTC) or of a number; None if unknown."""
    if text in ("Unknown", "None", ""):
        return None
    if text.isdigit():
        return float(text)
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise InputError(f"{where}: '{text[:40]}' is not a time.", next_step="Write 2021-10-05T11:26:12.") from None


def _duration(row: dict[str, str]) -> float | None:
    """Return the time limit in seconds: TimelimitRaw in minutes, or Timelimit as [days-]hours:minutes:seconds."""
    if raw := row.get("TimelimitRaw"):
        return float(raw) * 60
    text = row.get("Timelimit", "")
    if not text or not text[0].isdigit():
        return None
    days, dash, clock = text.rpartition("-")
    parts = [float(part) for part in clock.split(":")]
    seconds = 0.0
    for part in parts:
        seconds = seconds * 60 + part
    if len(parts) == 1:
        seconds *= 60
    return seconds + (86_400 * int(days) if dash else 0)
