"""Tests leave no process behind, even if pytest itself is killed with signal 9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from hosts import lacking
from live import wait_for
from offcut.cluster.slurm.testbed import missing
from reaper import ENV_MARK, kill_marked, marked

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-2")]

ENDLESS = Path(__file__).with_name("endless.py")


def _living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def test_nothing_is_left_of_killed_tests(tmp_path: Path) -> None:
    """First one of the processes that run tests is killed, then the one that directs them."""
    mark = f"{os.environ[ENV_MARK]}/{uuid.uuid4().hex[:12]}"
    names = ["job", *(["slurm"] if not missing() else []), *(["hosts"] if not lacking() else [])]
    environment = {**os.environ, ENV_MARK: mark, "OFFCUT_TEST_READY": str(tmp_path)}
    chosen = ["-k", " or ".join(names), "-n", str(len(names)), "--max-worker-restart", "0"]
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, str(ENDLESS)]
        pytest_ = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        files = [tmp_path / f"{name}.json" for name in names]

        def ready() -> bool:
            assert pytest_.poll() is None, (tmp_path / "log").read_text()
            return all(file.exists() for file in files)

        wait_for("the tests to have started everything", ready)
        job, *others = (json.loads(file.read_text()) for file in files)
        started = [*job["started"], *(pid for other in others for pid in other["started"])]
        assert len(_living(started)) == len(started)

        os.kill(job["pid"], signal.SIGKILL)
        wait_for("what the killed worker started to end", lambda: not marked(job["mark"]) + _living(job["started"]))
        assert all(_living(other["started"]) == other["started"] for other in others), "the others go on"

        pytest_.kill()
        wait_for("everything to end", lambda: not marked(mark) + _living(started))
    finally:
        pytest_.kill()
        pytest_.wait()
        kill_marked(mark)
