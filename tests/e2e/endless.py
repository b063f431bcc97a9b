"""Tests that never end, with all kinds of processes that tests start: test_killed_tests.py runs and kills them."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from golden import SCRIPT

from hosts import Hosts
from live import wait_for
from reaper import ENV_MARK, marked
from slurmed import private_slurm  # noqa: F401


def _ready(name: str, *pids: int) -> None:
    """Report who has started what, and wait for ever."""
    mark = os.environ[ENV_MARK]
    found = {"pid": os.getpid(), "mark": mark, "started": sorted({*pids, *marked(mark)})}
    new = Path(os.environ["OFFCUT_TEST_READY"], f"{name}.new")
    new.write_text(json.dumps(found))
    new.rename(new.with_suffix(".json"))
    while True:
        signal.pause()


def test_a_job_trains(up: Callable) -> None:
    running = up(2)
    job = running.submit(SCRIPT, "--epochs", "100000", "--pace", "0.05", sizes="1:2")
    running.until(job, "two members", lambda shown: shown["size"] == 2 and shown["steps"] > 2)
    frozen = running.workers()[0]
    frozen.suspend()
    forked = multiprocessing.get_context("fork").Process(target=signal.pause)
    forked.start()
    _ready("job", forked.pid or 0)


def test_slurm_runs_a_job(private_slurm: Callable) -> None:  # noqa: F811
    slurm = private_slurm(1)
    job = slurm.submit("setsid sleep 1000 & sleep 1000")
    wait_for("the job", lambda: slurm.state(job) == "RUNNING" and len(slurm.strays()) >= 4)
    daemon = "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(1000)\n os._exit(0)"
    subprocess.run(["python3", "-c", daemon], check=True)
    _ready("slurm", *slurm.strays())


def test_hosts_wait(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path, ["n01"])
    _ready("hosts", *(host.pid for host in hosts.all.values()))
