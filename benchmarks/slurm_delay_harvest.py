"""offcut on the private Slurm of `slurm_delay.py`, and what it made of the idle nodes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from slurm_delay_stream import Started

from offcut.cluster.slurm.testbed import SlurmTestbed
from offcut.report.run_timeline import Span, timeline
from offcut.service.paths import StatePaths
from offcut.store.journal import Journal
from offcut.wire.client import Client

TRAIN = Path(__file__).with_name("slurm_delay_train.py")
#: Shorter windows are not counted in `trained_share`.
LONG_WINDOW_S = 5.0
_CLAIMED = ("held", "boots", "trains")
#: Workers are forked from one process because the nodes share this machine; measured scaling would show its load.
SITE = """
[settings]
horizon_s = 20.0
profiler = "oracle"
[slurm]
partition = "idle"
mode = "{mode}"
interval_s = {interval_s}
pending_limit_s = 10.0
bench_s = 5.0
worker_template = "{template}"
[slurm.worker_env]
GLOO_SOCKET_IFNAME = "lo"
"""


class Harvest:
    """A controller with two trainings without end, which has claimed every node of the private Slurm."""

    def __init__(self, slurm: SlurmTestbed, root: Path, *, mode: str, interval_s: float) -> None:
        self._slurm = slurm
        self.paths = StatePaths(root)
        self.paths.prepare()
        site = SITE.format(template=slurm.worker_template, mode=mode, interval_s=interval_s)
        (root / "site.toml").write_text(site)
        command = [sys.executable, "-m", "offcut", "up", "--cluster", "slurm", "--config", str(root / "site.toml")]
        with (root / "controller.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--state", str(root), "--log-json"], env=slurm.env, stdout=log, stderr=log
            )
        try:
            self._start_trainings(root)
        except BaseException:
            self.process.kill()
            raise

    def _start_trainings(self, root: Path) -> None:
        nodes = len(self._slurm.config.names)
        give_up_s = time.monotonic() + 120
        while not self.paths.socket.exists():
            if self.process.poll() is not None or time.monotonic() > give_up_s:
                raise SystemExit(f"the controller did not start: {(root / 'controller.log').read_text()[-800:]}")
            time.sleep(0.05)
        client = Client(self.paths.socket)
        for name in ("a", "b"):
            job = {"name": name, "command": [str(TRAIN)], "workdir": str(root), "sizes": f"1:{nodes}"}
            client.post("/v1/jobs", job)
        while sum(job["size"] for job in client.get("/v1/status")["jobs"]) < nodes:
            if time.monotonic() > give_up_s:
                raise SystemExit("not every idle node came to be trained on")
            time.sleep(0.1)
        client.close()

    def stop(self) -> int:
        """End the controller; return how many of its jobs and processes are left (should be 0)."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)
        pilots = self._slurm.run("squeue", "--noheader", "--format=%i").split()
        time.sleep(1.0)  # processes that are ending may end
        return len(pilots) + len(self._slurm.strays())

    def spans(self) -> list[Span]:
        """Return what every node was used for, after the end."""
        journal = Journal(self.paths.journal)
        run = timeline(journal.replay())
        journal.close()
        return run.spans


def took_claimed_node(job: Started, spans: Sequence[Span]) -> bool:
    """Return whether a node of the job was held by a pilot when the job was submitted."""
    return any(
        span.node in job.nodes and span.condition in _CLAIMED and span.start_s <= job.submitted_s <= span.end_s
        for span in spans
    )


def idle_windows(
    jobs: Sequence[Started], names: Sequence[str], from_s: float, to_s: float
) -> list[tuple[str, float, float]]:
    """Return the (node, start, end) in which no main job held the node."""
    windows = []
    for name in names:
        free_s = from_s
        for job in sorted((job for job in jobs if name in job.nodes), key=lambda job: job.start_s):
            if job.start_s > free_s:
                windows.append((name, free_s, min(job.start_s, to_s)))
            free_s = max(free_s, job.end_s)
        if free_s < to_s:
            windows.append((name, free_s, to_s))
    return windows


def node_seconds(spans: Sequence[Span], windows: Sequence[tuple[str, float, float]]) -> dict[str, float]:
    """Return the idle, claimed, booting and trained node-seconds within the windows."""
    sums = dict.fromkeys(("idle", "claimed", "boots", "trained"), 0.0)
    for node, start_s, end_s in windows:
        sums["idle"] += end_s - start_s
        for span in spans:
            if span.node == node and span.condition in _CLAIMED:
                shared_s = max(0.0, min(end_s, span.end_s) - max(start_s, span.start_s))
                sums["claimed"] += shared_s
                sums["boots"] += shared_s if span.condition == "boots" else 0.0
                sums["trained"] += shared_s if span.condition == "trains" else 0.0
    return sums
