"""A job record of Slurm's accounting, and the conversion of records to a batch log, for both readers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offcut.errors import InputError
from offcut.traces.batch_log import BatchJob, BatchLog, count_note, make_log


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRecord:
    """A job as recorded: times in seconds since 1970, None if Slurm says Unknown; `where` is its place in the file."""

    id: str
    submit_s: float | None
    start_s: float | None
    end_s: float | None
    requested_s: float | None
    nodes: int
    hosts: tuple[str, ...]
    where: str


def log_of_records(source: str, records: Iterable[SlurmRecord], notes: Iterable[str] = ()) -> BatchLog:
    """Return the log of the jobs that ran; a job without an end lasts to the end of the log."""
    records = list(records)
    last_s = max((t for r in records for t in (r.submit_s, r.start_s, r.end_s) if t is not None), default=0.0)
    jobs: list[BatchJob] = []
    never_started = running = 0
    for record in records:
        if record.submit_s is None or record.start_s is None or record.nodes < 1:
            never_started += 1
            continue
        end_s = last_s if record.end_s is None else record.end_s
        if end_s < record.start_s:
            raise InputError(
                f"{record.where}, field End: job {record.id} ends {record.start_s - end_s:g} s before its start: "
                "the clock goes back.",
                next_step="Take the log with TZ=UTC, which has no summer time.",
            )
        if end_s == record.start_s:
            never_started += 1
            continue
        running += record.end_s is None
        jobs.append(
            BatchJob(
                id=record.id,
                submit_s=min(record.submit_s, record.start_s),
                start_s=record.start_s,
                run_s=end_s - record.start_s,
                requested_s=record.requested_s,
                nodes=len(record.hosts) or record.nodes,
                node_list=record.hosts,
            )
        )
    return make_log(
        source,
        jobs,
        notes=[
            *notes,
            *count_note(never_started, "Jobs that never ran, left out"),
            *count_note(running, "Jobs without an end yet, taken to last to the end of the log"),
        ],
    )
