"""The history: jobs that have ended and left the state. A table of the journal's database.

What is in it follows from the events, as the state does: `Journal.fold` carries the same effects out again, and adding
or removing a job twice is the same as once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from pydantic import TypeAdapter

from offcut.model.effects import ArchiveJob, Effect, ForgetJobs
from offcut.model.ended_job import EndedJob
from offcut.store.database_errors import unusable
from offcut.store.row_format import encode

_JOB: TypeAdapter[EndedJob] = TypeAdapter(EndedJob)


class History:
    """Reads and writes the table. Its methods raise StoreError where the database cannot be used."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        self._db = db
        self._path = path

    def carry_out(self, effects: Iterable[Effect]) -> None:
        """Add and remove jobs as these effects say; other effects mean nothing here."""
        for effect in effects:
            if isinstance(effect, ArchiveJob):
                self._add(effect.job)
            elif isinstance(effect, ForgetJobs):
                self._remove(effect.jobs)

    def _add(self, job: EndedJob) -> None:
        row = (job.job.id, job.job.name, job.ended_s, encode(job))
        # An existing row was written when the job ended; a fold knows less of the job's last steps.
        self._execute("INSERT OR IGNORE INTO history VALUES (?, ?, ?, ?)", row)

    def _remove(self, jobs: tuple[str, ...]) -> None:
        for job in jobs:
            self._execute("DELETE FROM history WHERE job = ?", (job,))
            self._execute("DELETE FROM story WHERE subject = ?", (job,))

    def count(self) -> int:
        """Return how many jobs are in the history."""
        return int(self._execute("SELECT count(*) FROM history")[0][0])

    def newest(self, limit: int | None = None) -> list[EndedJob]:
        """Return the jobs that ended last, at most `limit` of them; the first to end comes first."""
        rows = self._execute(
            "SELECT data FROM history ORDER BY ended_s DESC, job DESC LIMIT ?", (-1 if limit is None else limit,)
        )
        return [_JOB.validate_json(data) for (data,) in reversed(rows)]

    def find(self, job: str) -> EndedJob | None:
        """Return the job with this id; else the one that ended last of those with this name; None if there is none."""
        rows = self._execute(
            "SELECT data FROM history WHERE job = ? OR name = ? ORDER BY job = ? DESC, ended_s DESC LIMIT 1",
            (job, job, job),
        )
        return _JOB.validate_json(rows[0][0]) if rows else None

    def ended_before(self, time_s: float) -> list[tuple[str, float]]:
        """Return the jobs that ended before this time, with the times of their ends; the first to end comes first."""
        return self._execute("SELECT job, ended_s FROM history WHERE ended_s < ? ORDER BY ended_s", (time_s,))

    def _execute(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple]:  # type: ignore[type-arg]
        try:
            return self._db.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise unusable(self._path, error) from None
