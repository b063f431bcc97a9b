"""Notes the losses of jobs while they train, and keeps them for as long as the jobs are remembered."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.control import State
from offcut.control.state import LIVE
from offcut.process.daemon_thread import in_daemon_thread

#: How often losses are noted at first.
_NOTE_S = 1.0
#: When a job has this many points, every second one is dropped, and those that follow are noted half as often.
_MOST_POINTS = 4096
_HEADING = "time_s,generation,step,samples,loss"


@dataclass(frozen=True, slots=True)
class LossPoint:
    """The loss of the last step that the job had reported at `time_s`; NaN where that is not a finite number."""

    time_s: float
    generation: int
    step: int
    samples: int
    loss: float

    def __str__(self) -> str:
        return f"{self.time_s:.3f},{self.generation},{self.step},{self.samples},{self.loss!r}"


@dataclass(slots=True)
class _Noted:
    """What was noted of a job: the last step, when, and how far apart in time points are to be."""

    last: tuple[int, int] = (0, 0)
    time_s: float = -math.inf
    spacing_s: float = _NOTE_S
    #: How many points its file has; None: not counted yet.
    points: int | None = None


class LossHistory:
    """One file per job in `directory`: comma-separated values, the oldest first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._noted: dict[str, _Noted] = {}

    async def keep(self, state: State, now: Callable[[], float]) -> None:
        """Note the losses of the jobs that train, until cancelled. Raises OSError."""
        while True:
            await asyncio.sleep(_NOTE_S)
            if due := self.due(now(), state):
                await in_daemon_thread(self.write, due)

    def due(self, now_s: float, state: State) -> list[tuple[str, LossPoint]]:
        """Return the points that are to be written now: of jobs that train, and the last one of those that have ended.

        Args:
            now_s: the controller's time.
            state: what the controller knows.
        """
        found = []
        for job_id, job in state.jobs.items():
            noted = self._noted.get(job_id)
            if noted is None:
                # Jobs that had ended when the controller began were noted by the one before it.
                if job.phase not in LIVE or job.restarts:
                    continue
                noted = self._noted[job_id] = _Noted()
            progress, live = job.progress, job.phase in LIVE
            step = (progress.generation, progress.step)
            # Looks are not exactly as far apart as they are meant to be.
            if step != noted.last and (not live or now_s - noted.time_s > noted.spacing_s - _NOTE_S / 2):
                noted.last, noted.time_s = step, now_s
                found.append((job_id, LossPoint(now_s, *step, progress.samples, progress.loss)))
        for job_id in [job_id for job_id in self._noted if job_id not in state.jobs]:
            del self._noted[job_id]
        return found

    def write(self, due: Iterable[tuple[str, LossPoint]]) -> None:
        """Append the points to the jobs' files. Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for job_id, point in due:
            noted = self._noted.get(job_id, _Noted())
            path = self._path(job_id)
            if noted.points is None:
                noted.points = len(self.read(job_id))
            with path.open("a") as file:
                file.write(f"{point}\n" if file.tell() else f"{_HEADING}\n{point}\n")
            noted.points += 1
            if noted.points >= _MOST_POINTS:
                self._thin(path, noted)

    def _thin(self, path: Path, noted: _Noted) -> None:
        """Drop every second point of a file, and never the last one."""
        kept = _points(path)[::-2][::-1]
        whole = path.with_suffix(".new")
        whole.write_text("\n".join([_HEADING, *map(str, kept)]) + "\n")
        whole.replace(path)
        noted.points = len(kept)
        noted.spacing_s *= 2

    def read(self, job_id: str) -> list[LossPoint]:
        """Return what was noted of a job, oldest first; nothing if nothing was, or if it cannot be read."""
        try:
            return _points(self._path(job_id))
        except OSError:
            return []

    def forget(self, job_id: str) -> None:
        """Delete the file of a job that is forgotten."""
        self._noted.pop(job_id, None)
        with suppress(OSError):
            self._path(job_id).unlink(missing_ok=True)

    def _path(self, job_id: str) -> Path:
        return self._directory / f"{job_id}.csv"


def _points(path: Path) -> list[LossPoint]:
    """Return the points in a file; lines that cannot be read are left out, as one that was cut short by a crash."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        with suppress(ValueError, TypeError):
            time_s, generation, step, samples, loss = line.split(",")
            found.append(LossPoint(float(time_s), int(generation), int(step), int(samples), float(loss)))
    return found


def stable_points(points: Iterable[LossPoint]) -> list[LossPoint]:
    """Return the points of the training as it went in the end: without steps that were done again later.

    Args:
        points: in the order in which they were noted.
    """
    kept: list[LossPoint] = []
    for point in points:
        while kept and kept[-1].step >= point.step:
            kept.pop()
        kept.append(point)
    return kept


def describe(points: Iterable[LossPoint]) -> dict[str, list[Any]]:
    """Return the points as columns for JSON; a loss that is not a finite number is null."""
    kept = stable_points(points)
    return {
        "time_s": [point.time_s for point in kept],
        "generation": [point.generation for point in kept],
        "step": [point.step for point in kept],
        "samples": [point.samples for point in kept],
        "loss": [point.loss if math.isfinite(point.loss) else None for point in kept],
    }
