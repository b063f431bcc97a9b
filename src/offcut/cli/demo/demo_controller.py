"""The demo's controller: a process of its own, with a cluster and a temporary state directory."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.cli.demo.main_queue import MainQueue
from offcut.cli.demo.scenario import PRELOAD, DemoJob
from offcut.cluster.local.schedule import Schedule
from offcut.errors import OffcutError
from offcut.service.paths import StatePaths
from offcut.traces.windows import write_windows
from offcut.wire.client import Client
from offcut.wire.jobspec import JobSpec

_START_PATIENCE_S = 60.0
_STOP_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class DemoController:
    """A running controller and a client of it."""

    paths: StatePaths
    client: Client
    process: subprocess.Popen[bytes]

    def submit(self, job: DemoJob) -> str:
        """Submit a job and return its id."""
        spec = JobSpec(
            name=job.name,
            command=[str(job.script)],
            sizes=job.sizes,
            workdir=str(job.script.parent),
            checkpoint_age_s=4.0,
            step_records=True,
        )
        submitted: dict[str, Any] = self.client.post("/v1/jobs", spec.model_dump())
        return str(submitted["id"])

    def stop(self) -> None:
        """End the controller; the members leave at their next step boundary."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_PATIENCE_S)
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


@contextlib.contextmanager
def demo_controller(
    schedule: Schedule, *, grace_s: float, horizon_s: float, keep: Path | None, queue: MainQueue | None = None
) -> Iterator[DemoController]:
    """Run a controller whose windows' clock waits for `begin`; only `keep` is left afterwards.

    With a `queue`, it uses the idle nodes of that queue's Slurm instead of virtual nodes.
    """
    # The path must be short, because it contains UNIX sockets.
    root = keep.absolute() if keep else Path(tempfile.mkdtemp(prefix="offcut-"))
    paths = StatePaths(root)
    paths.prepare()
    if queue is None:
        windows = root / "windows.csv"
        write_windows(windows, schedule.windows)
        cluster = ["--windows", str(windows), "--grace", str(grace_s), "--wait-begin", "--preload", ",".join(PRELOAD)]
    else:
        cluster = ["--cluster", "slurm", "--config", str(queue.site_file())]
    # The demo's nodes share this machine's cores, so measured curves would be flat and no job would grow.
    settings = ["--horizon", str(horizon_s), "--profiler", "oracle"]
    command = [sys.executable, "-m", "offcut", "up", "--state", str(root), *settings, *cluster]
    with (root / "controller.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--log-json"],
            env=queue.slurm.env if queue else None,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    running = DemoController(paths, Client(paths.socket), process)
    try:
        _await_ready(running)
        yield running
    finally:
        running.stop()
        running.client.close()
        if keep is None:
            shutil.rmtree(root, ignore_errors=True)


def _await_ready(running: DemoController) -> None:
    give_up_s = time.monotonic() + _START_PATIENCE_S
    while not running.paths.socket.exists():
        if running.process.poll() is not None or time.monotonic() > give_up_s:
            log = (running.paths.root / "controller.log").read_text(errors="replace")
            raise OffcutError(f"The demo's controller did not start: {log[-500:]}")
        time.sleep(0.02)
