"""Standard Workload Format, as in the Parallel Workloads Archive, with MetaCentrum's extra column of hosts.

Eighteen numbers per line, -1 if unknown; lines that begin with `;` are the header (`; MaxNodes: 100`).
https://www.cs.huji.ac.il/labs/parallel/workload/swf.html
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from offcut.errors import InputError
from offcut.traces.batch_log import BatchJob, BatchLog, count_note, make_log
from offcut.traces.text_file import read_text, write_text

FIELDS = (
    "job", "submit", "wait", "run time", "allocated processors", "CPU time", "memory", "requested processors",
    "requested time", "requested memory", "status", "user", "group", "executable", "queue", "partition",
    "preceding job", "think time",
)  # fmt: skip
_JOB, _SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED, _REQUESTED_S = 0, 1, 2, 3, 4, 7, 8
_USED = (_SUBMIT, _WAIT, _RUN, _ALLOCATED, _REQUESTED, _REQUESTED_S)


def read_swf(path: str | Path) -> BatchLog:
    """Read an SWF file, gzipped or not.

    A job's `nodes` are its allocated processors, else the requested ones. Jobs that never ran (no positive run time,
    no processors) are left out and counted in a note. Raises InputError that names file, line and field.
    """
    jobs: list[BatchJob] = []
    machine: int | None = None
    never_ran = 0
    previous_s = 0.0
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.startswith(";"):
            key, _, value = line.lstrip("; \t").partition(":")
            if key.strip() in ("MaxProcs", "MaxNodes") and value.strip().isdigit():
                machine = max(machine or 0, int(value))
            continue
        fields = line.split(None, len(FIELDS))
        if not fields:
            continue
        where = f"{path}, line {number}"
        if len(fields) < len(FIELDS):
            raise InputError(
                f"{where}: {len(fields)} fields, but SWF has {len(FIELDS)}.",
                next_step="Write -1 for unknown values.",
            )
        values = dict(zip(_USED, _numbers(fields, where), strict=True))
        if values[_SUBMIT] < 0:
            raise InputError(f"{where}, field submit: {fields[_SUBMIT]}.", next_step="Each job has a submit time.")
        if values[_SUBMIT] < previous_s:
            raise InputError(
                f"{where}, field submit: the clock goes back from {previous_s:g} to {fields[_SUBMIT]} s.",
                next_step="Sort the log by submit time.",
            )
        previous_s = values[_SUBMIT]
        processors = int(values[_ALLOCATED] if values[_ALLOCATED] > 0 else values[_REQUESTED])
        if values[_RUN] <= 0 or processors <= 0:
            never_ran += 1
            continue
        hosts = _hosts(fields[len(FIELDS)]) if len(fields) > len(FIELDS) else ()
        jobs.append(
            BatchJob(
                id=fields[_JOB],
                submit_s=values[_SUBMIT],
                start_s=values[_SUBMIT] + values[_WAIT] if values[_WAIT] >= 0 else None,
                run_s=values[_RUN],
                requested_s=values[_REQUESTED_S] if values[_REQUESTED_S] > 0 else None,
                nodes=len(hosts) or processors,
                node_list=hosts,
            )
        )
    notes = count_note(never_ran, "Jobs without run time or processors, left out")
    return make_log(str(path), jobs, unit="processors", machine=machine, notes=notes)


def _numbers(fields: list[str], where: str) -> list[float]:
    try:
        return [float(fields[i]) for i in _USED]
    except ValueError:
        for i in _USED:
            try:
                float(fields[i])
            except ValueError:
                raise InputError(
                    f"{where}, field {FIELDS[i]}: '{fields[i][:40]}' is not a number.",
                    next_step="Check that the file is SWF.",
                ) from None
        raise


def _hosts(extra: str) -> tuple[str, ...]:
    """Return the distinct hosts of MetaCentrum's extra column, `{1241,1241,1242} queue 1:ppn=2`.

    One id per processor.
    """
    if not extra.startswith("{"):
        return ()
    listed = extra[1:].partition("}")[0].split(",")
    return tuple(dict.fromkeys(host.strip() for host in listed if host.strip()))


def write_swf(path: str | Path, jobs: Iterable[BatchJob], machine: int) -> None:
    """Write `jobs` as SWF for a machine of `machine` nodes, gzipped if the name ends in `.gz`.

    SWF has no field for node names; ids that are not integers are replaced by numbers.
    """
    lines = [f"; MaxNodes: {machine}", f"; MaxProcs: {machine}"]
    for number, job in enumerate(jobs, start=1):
        wait = -1 if job.start_s is None else job.start_s - job.submit_s
        requested = -1 if job.requested_s is None else job.requested_s
        columns: list[float | str] = ["-1"] * len(FIELDS)
        columns[_JOB] = job.id if job.id.isdigit() else str(number)
        columns[_SUBMIT], columns[_WAIT], columns[_RUN], columns[_REQUESTED_S] = (
            job.submit_s,
            wait,
            job.run_s,
            requested,
        )
        columns[_ALLOCATED] = columns[_REQUESTED] = job.nodes
        lines.append(" ".join(value if isinstance(value, str) else f"{value:.15g}" for value in columns))
    write_text(path, "\n".join(lines) + "\n")
