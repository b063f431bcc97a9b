"""The demo's main queue on a private Slurm: batch jobs that want their nodes whenever the windows say so."""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.cli.demo.scenario import PRELOAD
from offcut.cluster.local.schedule import Schedule
from offcut.cluster.slurm.testbed import SlurmTestbed
from offcut.cluster.slurm.testbed_config import SlurmTestbedConfig
from offcut.errors import ClusterError

#: The bound on a main job's start delay: Slurm's own passes before and after its node is free take up to a second each.
START_BOUND_S = 3.0
#: How many jobs are submitted again without offcut, how far apart, and how long each runs.
_ALONE_JOBS = 30
_ALONE_SPACING_S = 0.4
_ALONE_RUN_S = 0.1
_ALONE_PATIENCE_S = 30.0

SITE = """
[slurm]
partition = "idle"
interval_s = 0.5
pending_limit_s = 10.0
bench_s = 5.0
worker_template = "{template}"
[slurm.worker_env]
GLOO_SOCKET_IFNAME = "lo"
"""


@dataclass(frozen=True, slots=True)
class MainJob:
    """A node that the main queue wants from `at_s` on, for `run_s`."""

    node: str
    at_s: float
    run_s: float


def main_jobs(schedule: Schedule, duration_s: float) -> list[MainJob]:
    """Return the main jobs between the windows, in order of time; gaps of less than a second have no job."""
    found = []
    for node in schedule.nodes:
        free_s = 0.0
        for window in sorted(window for window in schedule.windows if window.node == node):
            found.append(MainJob(node, free_s, window.start_s - free_s))
            free_s = window.end_s
        found.append(MainJob(node, free_s, duration_s - free_s))
    return sorted((item for item in found if item.run_s >= 1.0), key=lambda item: item.at_s)


class MainQueue:
    """Submits every main job at its time, from `begin` on; each notes when its script began."""

    def __init__(self, slurm: SlurmTestbed, schedule: Schedule, duration_s: float) -> None:
        self.slurm = slurm
        self._jobs = main_jobs(schedule, duration_s)
        self._notes = slurm.directory / "main"
        self._notes.mkdir()
        self._submitted: dict[int, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def _play(self) -> None:
        began_s = time.monotonic()
        for index, job in enumerate(self._jobs):
            if self._over.wait(max(0.0, began_s + job.at_s - time.monotonic())):
                return
            with contextlib.suppress(ClusterError):  # the demo is being stopped
                self._submitted[index] = self._submit(job.node, job.run_s, self._notes / str(index))

    def _submit(self, node: str, run_s: float, note: Path) -> float:
        """Submit a job that notes when its script began; return when it was submitted."""
        script = f"date +%s.%N >{note}.new && mv {note}.new {note}\nexec sleep {run_s:.2f}"
        limit = f"--time={math.ceil(run_s / 60) + 1}"
        submitted_s = time.time()
        self.slurm.submit(script, "--partition=main", f"--nodelist={node}", limit)
        return submitted_s

    def start_delays(self) -> list[dict[str, Any]]:
        """Return how long each main job waited from sbatch to its script's first line."""
        self._over.set()
        return [
            {
                "node": self._jobs[index].node,
                "wanted_s": submitted_s,
                "took_s": float(note.read_text()) - submitted_s,
                "killed": False,
            }
            for index, submitted_s in self._submitted.items()
            if (note := self._notes / str(index)).exists()
        ]

    def start_delays_alone(self) -> list[float]:
        """Submit the first jobs again, each to an idle node of a Slurm without offcut; return their start delays.

        Call it when the controller has ended.
        """
        self.slurm.run("scancel", "--partition=main", "--full")
        give_up_s = time.monotonic() + _ALONE_PATIENCE_S
        while self.slurm.run("squeue", "--noheader", "--format=%i").strip() and time.monotonic() < give_up_s:
            time.sleep(0.2)
        submitted: dict[Path, float] = {}
        for index, job in enumerate(self._jobs[:_ALONE_JOBS]):
            note = self._notes / f"alone-{index}"
            submitted[note] = self._submit(job.node, _ALONE_RUN_S, note)
            time.sleep(_ALONE_SPACING_S)
        while not all(note.exists() for note in submitted) and time.monotonic() < give_up_s:
            time.sleep(0.1)
        return [float(note.read_text()) - submitted_s for note, submitted_s in submitted.items() if note.exists()]

    def site_file(self) -> Path:
        path = self.slurm.directory / "site.toml"
        path.write_text(SITE.format(template=self.slurm.worker_template))
        return path


@contextlib.contextmanager
def main_queue(schedule: Schedule, duration_s: float) -> Iterator[MainQueue]:
    """Yield a private Slurm with the schedule's nodes and a queue to play, removed afterwards.

    InputError without Slurm.
    """
    root = Path(tempfile.mkdtemp(prefix="offcut-slurm-"))
    config = SlurmTestbedConfig(names=tuple(schedule.nodes), worker_template=True, preload=PRELOAD)
    slurm = SlurmTestbed(root, config)
    try:
        slurm.start()
        yield MainQueue(slurm, schedule, duration_s)
    finally:
        slurm.stop()
        shutil.rmtree(root, ignore_errors=True)
