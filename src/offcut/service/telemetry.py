"""Notes every second how far the jobs are: for the report, and for the next controller."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from offcut.control import State
from offcut.control.state import LIVE
from offcut.model.events import JobProgressed

#: The last line is looked for in this many bytes at the end of the file.
_TAIL_BYTES = 1 << 20


class Telemetry:
    """The file `path`, JSON lines. If it has half of the bytes that are allowed, it takes the place of `older`."""

    def __init__(self, path: Path, older: Path) -> None:
        self._path = path
        self._older = older

    def note(self, now_s: float, state: State) -> None:
        """Append a line about the live jobs, if there are any. Raises OSError."""
        live = {job_id: job.progress for job_id, job in state.jobs.items() if job.phase in LIVE}
        if not live:
            return
        line = {
            "time_s": round(now_s, 3),
            "samples": {job_id: progress.samples for job_id, progress in live.items()},
            "steps": {job_id: [progress.generation, progress.step] for job_id, progress in live.items()},
        }
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            full = file.tell() >= state.settings.telemetry_bytes // 2
        if full:
            self._path.replace(self._older)

    def last(self) -> Iterator[JobProgressed]:
        """Yield how far the jobs were when that was noted last; nothing if no line can be read."""
        try:
            path = self._path if self._path.exists() else self._older
            with path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = [line for line in file.read().splitlines() if line.endswith(b"}")]
            noted = json.loads(lines[-1]) if lines else {}
            for job, (generation, step) in noted.get("steps", {}).items():
                yield JobProgressed(
                    time_s=float(noted["time_s"]),
                    job=job,
                    generation=int(generation),
                    step=int(step),
                    samples=int(noted["samples"][job]),
                    loss=float("nan"),
                )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return  # the jobs report how far they are once their agents connect
