"""A controller ends when it should, says why, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from live import PATIENCE_S, Running, command_of, wait_for
from offcut.service.paths import StatePaths
from offcut.wire.client import Client

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-2")]

POLICIES = Path(__file__).resolve().parents[1] / "service" / "policies_that_hang.py"


def said(running: Running) -> list[str]:
    """Return what it told the user, without its log."""
    lines = (running.paths.root / "controller.log").read_text().splitlines()
    return [line for line in lines if line.startswith("offcut: ")]


def test_the_death_of_the_virtual_nodes_daemon_is_reported_at_once_and_leaves_no_process(up: Callable) -> None:
    running = up(2)
    (daemon,) = [p for p in running.processes() if "offcut.cluster.local.daemon" in command_of(p)]
    daemon.kill()
    assert running.process.wait(PATIENCE_S) == 1
    (sentence,) = said(running)
    assert sentence.startswith("offcut: The daemon of the local cluster died")
    wait_for("every process to end", lambda: not running.processes())


def test_neither_a_policy_that_hangs_nor_a_task_that_fails_stops_the_jobs_or_the_end(
    up: Callable, tmp_path: Path, state_dir: Path
) -> None:
    (state_dir / "telemetry.jsonl").mkdir()
    script = tmp_path / "idle.py"
    script.write_text("import time\ntime.sleep(600)\n")
    config = tmp_path / "offcut.toml"
    config.write_text("[settings]\nsolve_limit_s = 1.0\n")
    running = up(1, "--policy", f"{POLICIES}:loops", "--config", str(config))
    job = running.submit(script, sizes="1", mode="restart", step_records=False)
    # It is killed, and a greedy answer is taken.
    running.until(job, "a node", lambda shown: shown["size"] == 1)
    words = " ".join(running.client.get(f"/v1/jobs/{job}/why")["words"])
    assert "did not answer within 1 s and was killed" in words
    assert "greedy" in words
    # Nothing can be noted for the report meanwhile.
    (task,) = [task for task in running.client.get("/v1/status")["tasks"] if task["name"] == "telemetry"]
    assert task["failures"] > 0
    assert "Is a directory" in task["last_error"]
    shown = subprocess.run(
        [sys.executable, "-m", "offcut", "status", "--state", str(state_dir)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "The controller's task 'telemetry' has failed" in shown.stdout
    # It is asked again, and hangs again.
    running.submit(script, sizes="1", mode="restart", step_records=False)
    children = psutil.Process(running.process.pid).children(recursive=True)
    running.process.send_signal(signal.SIGHUP)
    assert running.process.wait(PATIENCE_S) == 0
    wait_for("its children to end", lambda: not any(psutil.pid_exists(child.pid) for child in children))


def test_a_second_signal_ends_it_at_once(up: Callable) -> None:
    running = up(1)
    (daemon,) = [p for p in running.processes() if "offcut.cluster.local.daemon" in command_of(p)]
    # A batch system that does not answer: an orderly end would wait for it.
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        running.process.send_signal(signal.SIGTERM)
        log = running.paths.root / "controller.log"
        wait_for("the first to be heard", lambda: '"ending"' in log.read_text())
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(PATIENCE_S) == 1
        assert "Ended at once" in said(running)[-1]
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
        daemon.terminate()


@pytest.fixture
def detached(state_dir: Path) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """`detached(*options)` is `offcut up --detach`; whatever it started is ended."""

    def start(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "offcut", "up", "--detach", "--nodes", "1", "--state", str(state_dir)]
        return subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    yield start
    for process in psutil.process_iter():
        if str(state_dir) in command_of(process):
            process.kill()


def test_up_detached_returns_when_it_is_ready_and_ends_by_a_signal(state_dir: Path, detached: Callable) -> None:
    done = detached("--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["log"] == str(state_dir / "controller.log")
    assert (state_dir / "controller.log").stat().st_mode & 0o077 == 0
    with Client(StatePaths(state_dir).socket) as client:
        assert client.get("/v1/status")["claiming"]
    controller = psutil.Process(told["pid"])
    assert os.getsid(controller.pid) == controller.pid
    refused = detached()
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert "belongs to a running controller" in refused.stderr
    assert refused.stderr.rstrip().endswith("controller.log.")
    assert "belongs to" in json.loads(detached("--json").stdout)["error"]
    controller.terminate()
    wait_for("its end", lambda: not psutil.pid_exists(controller.pid) or controller.status() == psutil.STATUS_ZOMBIE)
    wait_for("every process to end", lambda: not any(str(state_dir) in command_of(p) for p in psutil.process_iter()))
    assert (state_dir / "report.html").exists()


def test_its_terminal_is_closed(state_dir: Path) -> None:
    """Its output cannot be written then: it ends as it was asked to."""
    terminal, its_end = os.openpty()
    controller = subprocess.Popen(
        [sys.executable, "-m", "offcut", "up", "--nodes", "1", "--state", str(state_dir)],
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
    )
    os.close(its_end)
    wait_for("the controller", lambda: b"ready" in os.read(terminal, 65536))
    os.close(terminal)
    controller.send_signal(signal.SIGHUP)
    assert controller.wait(PATIENCE_S) == 0
    wait_for("every process to end", lambda: not any(str(state_dir) in command_of(p) for p in psutil.process_iter()))
    assert (state_dir / "report.html").exists()
