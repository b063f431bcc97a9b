"""Reads what the scripts of trials report: lines in a file of each trial's directory.

A script appends `{"budget": 3, "value": 0.25}`, one line per report (`offcut.torch.report_objective` does that). A file
outlives the script, its node and the controller, so that no report is lost with one of them; and a report that is read
again, as after a restart of the controller, changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from offcut.control import State
from offcut.control.state import ENDED
from offcut.control.sweep_state import SweepState, TrialJob
from offcut.model import events
from offcut.model.events import ObjectiveReport
from offcut.process.daemon_thread import in_daemon_thread
from offcut.wire.worker_env import OBJECTIVES_FILE

_log = structlog.get_logger()

#: How often the files of trials that run are read.
_LOOK_S = 0.25
#: At most this much of a file is read at once, in bytes.
_MOST_BYTES = 1 << 20
#: A trial that has lost its members may report for this long: until they have ended.
_LATE_S = 60.0


@dataclass(slots=True)
class _Reading:
    """How far a file has been read."""

    path: Path
    offset: int = 0


class ObjectiveFiles:
    """Reads the files of all trials that may report, and tells the controller what is new."""

    def __init__(
        self,
        state: State,
        directory: Callable[[str], Path],
        now: Callable[[], float],
        handle: Callable[[events.Event], object],
    ) -> None:
        """`directory` returns the directory of a job's files."""
        self._state = state
        self._directory = directory
        self._now = now
        self._handle = handle
        self._readings: dict[str, _Reading] = {}

    async def keep(self) -> None:
        """Read the files again and again, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Read what is new in the files, and tell it."""
        due = [
            (sweep, job_id, trial_job.ended)
            for sweep in self._state.sweeps.values()
            # The halted trials of sweeps that have ended are not looked at for ever.
            if sweep.ended_s is None or self._now() < sweep.ended_s + _LATE_S
            for job_id, trial_job in sweep.trial_jobs.items()
            if trial_job.ended or self._may_report(job_id)
        ]
        if not due:
            return
        for forgotten in self._readings.keys() - {
            job_id for sweep in self._state.sweeps.values() for job_id in sweep.trial_jobs
        }:
            del self._readings[forgotten]
        readings = [
            self._readings.setdefault(job_id, _Reading(self._directory(job_id) / OBJECTIVES_FILE))
            for _, job_id, _ in due
        ]
        found = await in_daemon_thread(lambda: [_read(reading) for reading in readings])
        for (sweep, job_id, ended), reports in zip(due, found, strict=True):
            trial_job = sweep.trial_jobs.get(job_id)
            if trial_job is None:
                continue
            new = _unknown(sweep, trial_job, reports)
            if new or ended:
                self._handle(events.ObjectivesRead(time_s=self._now(), job=job_id, reports=new, complete=ended))
            if ended:
                self._readings.pop(job_id, None)

    def _may_report(self, job_id: str) -> bool:
        """Return whether there may be something new in the trial's file. Halted trials are not read for ever."""
        job = self._state.jobs.get(job_id)
        if job is None or job.trained_since_s is None or job.phase in ENDED:
            return False
        trains = job.phase in ("running", "finishing") or bool(job.state_holders)
        return trains or job_id not in self._readings or self._now() < job.size_since_s + _LATE_S


def _unknown(sweep: SweepState, trial_job: TrialJob, reports: list[ObjectiveReport]) -> tuple[ObjectiveReport, ...]:
    """Return the reports beyond the last one that the search knows: work that is done again is reported again."""
    last = sweep.search.trials[trial_job.trial].last_report
    newest = -math.inf if last is None else last.budget
    found = []
    for report in reports:
        if report.budget > newest:
            newest = report.budget
            found.append(report)
    return tuple(found)


def _read(reading: _Reading) -> list[ObjectiveReport]:
    """Return the reports in the whole lines that are new in the file. A file that cannot be read has none yet."""
    found: list[ObjectiveReport] = []
    try:
        with reading.path.open("rb") as file:
            file.seek(reading.offset)
            while data := file.read(_MOST_BYTES):
                whole = data[: data.rfind(b"\n") + 1]
                if not whole:
                    break
                reading.offset += len(whole)
                file.seek(reading.offset)
                found += [report for line in whole.splitlines() if (report := parse_report(line)) is not None]
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("objectives_unreadable", path=str(reading.path), error=error.strerror)
    return found


def parse_report(line: bytes) -> ObjectiveReport | None:
    """Return the report in a line; None if it is not one, as a line that a crash cut short. NaN and null are NaN.

    A line that was cut short, by a full disk say, has no end: the next report stands behind it in the same line.
    """
    try:
        fields = json.loads(line[max(0, line.rfind(b"{")) :])
        value = fields["value"]
        report = ObjectiveReport(float(fields["budget"]), math.nan if value is None else float(value))
    except (ValueError, TypeError, KeyError, OverflowError):
        if line.strip():
            _log.warning("objective_line_refused", line=line[:200].decode(errors="replace"))
        return None
    return report if math.isfinite(report.budget) and report.budget > 0 else None
