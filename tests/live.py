"""A real controller with real agents and workers, in a directory to throw away."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from offcut.service.paths import StatePaths
from offcut.wire.client import Client

#: Nothing here takes this long unless it hangs, not even where every core has three processes to run.
PATIENCE_S = 180.0
#: Between two polls: first and at most. A poll asks the controller or lists processes and takes 3 to 6 ms of a core:
#: four tests that polled every 20 ms would take half a core from what they wait for.
_FIRST_POLL_S, _POLL_S = 0.02, 0.15


def wait_for(what: str, found: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """Poll until `found()` is true. Return its value."""
    give_up_s = time.monotonic() + patience_s
    poll_s = _FIRST_POLL_S
    while not (value := found()):
        assert time.monotonic() < give_up_s, f"waited {patience_s:g} s in vain for: {what}"
        time.sleep(poll_s)
        poll_s = min(1.2 * poll_s, _POLL_S)
    return value


class Running:
    """A controller of `nodes` virtual nodes, started as `offcut up`.

    Jobs are taken to scale as they say (or by Amdahl's law) unless `options` say otherwise: nodes that share a
    machine's cores scale as its load allows, and a test's job would grow or not by chance.
    """

    def __init__(self, root: Path, nodes: int, *options: str) -> None:
        self.paths = StatePaths(root)
        self.nodes = nodes
        self._options = options
        self._clients: list[Client] = []
        self.start()

    def start(self) -> None:
        """Start the controller, again after it died, and wait until it answers."""
        self.launch(sys.executable, "-m", "offcut", "up")
        wait_for("the controller", self._answers)

    def launch(self, *program: str) -> None:
        """Start the controller by `program` instead."""
        options = ("--nodes", str(self.nodes), "--state", str(self.paths.root), "--log-json", *self._options)
        if "--profiler" not in options:
            options += ("--profiler", "oracle")
        with (self.paths.root / "controller.log").open("ab") as log:
            self.process = subprocess.Popen([*program, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._connect()

    def _connect(self) -> None:
        self.client = Client(self.paths.socket)
        self._clients.append(self.client)

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.paths.root / "controller.log").read_text()[-2000:]
        try:
            self.client.get("/v1/status")
        except Exception:
            return False
        return True

    def submit(self, script: Path, *arguments: str, **fields: Any) -> str:
        job = {
            "name": script.stem,
            "command": [str(script), *arguments],
            "workdir": str(script.parent),
            "step_records": True,
            **fields,
        }
        return str(self.client.post("/v1/jobs", job)["id"])

    def job(self, job: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.client.get(f"/v1/jobs/{job}")
        return shown

    def until(
        self, job: str, what: str, holds: Callable[[dict[str, Any]], Any], patience_s: float = PATIENCE_S
    ) -> dict[str, Any]:
        """Wait until `holds(job)`; fails with the job's story if it ends first."""

        def look() -> dict[str, Any] | None:
            shown = self.job(job)
            if holds(shown):
                return shown
            ended = shown["state"] in ("failed", "cancelled", "finished")
            assert not ended, (what, shown, self.story(job))
            return None

        found: dict[str, Any] = wait_for(what, look, patience_s)
        return found

    def until_ended(self, job: str) -> dict[str, Any]:
        """Wait until the job is over and its workers have ended. Return how it is shown then."""
        wait_for("its end", lambda: self.job(job)["state"] in ("failed", "cancelled", "finished"))
        wait_for("its workers' end", lambda: not self.workers())
        return self.job(job)

    def story(self, subject: str) -> list[str]:
        return [entry["text"] for entry in self.client.get(f"/v1/story/{subject}")]

    def stories(self, job: str) -> dict[str, list[str]]:
        """Return the logs of the job and of each node, for a failure that the job's log alone does not explain."""
        nodes = [str(node["name"]) for node in self.client.get("/v1/status")["nodes"]]
        return {job: self.story(job), **{name: self.story(name)[-12:] for name in nodes}}

    def workers(self) -> list[psutil.Process]:
        return self._forked_from("offcut.torch.programs.worker_template")

    def agents(self) -> list[psutil.Process]:
        return self._forked_from("offcut.agent.template")

    def _forked_from(self, template: str) -> list[psutil.Process]:
        """Return the children of the fork server, oldest first; they have its command line."""
        ours = [process for process in self.processes() if template in command_of(process)]
        pids = {process.pid for process in ours}
        return sorted((p for p in ours if p.ppid() in pids), key=lambda process: process.create_time())

    def processes(self) -> list[psutil.Process]:
        """Return every process that names the state directory."""
        mark = str(self.paths.root)
        return [p for p in psutil.process_iter() if p.pid != os.getpid() and mark in command_of(p)]

    def stop(self) -> None:
        """End the controller in good order, and check that nothing is left."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE_S)
        wait_for("every process to end", lambda: not self.processes())

    def kill_everything(self) -> None:
        for process in self.processes():
            process.kill()
        for client in self._clients:
            client.close()


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@contextmanager
def kept_if_failed(request: pytest.FixtureRequest, prefix: str) -> Iterator[Path]:
    """Make a directory for one test; if the test fails it is kept, and its path is printed with the failure."""
    root = Path(tempfile.mkdtemp(prefix=prefix))
    failed_before = request.session.testsfailed
    yield root
    if request.session.testsfailed > failed_before:
        print(f"The files of this test are kept in {root}")
    else:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def shared_controller(request: pytest.FixtureRequest, nodes: int, *options: str) -> Iterator[Running]:
    """Start a controller for several tests, whose start and end take 6 seconds of a core. See `prepare_nodes`."""
    with kept_if_failed(request, "offcut-test-") as root:
        running = Running(root, nodes, *options)
        try:
            yield running
            running.stop()
        finally:
            running.kill_everything()


def prepare_nodes(running: Running, idle: Sequence[str]) -> None:
    """Let these nodes be idle, no others, and forget what earlier tests have done to them."""
    for job in running.client.get("/v1/status")["jobs"]:
        if job["state"] not in ("failed", "cancelled", "finished"):
            running.client.post(f"/v1/jobs/{job['id']}/cancel")
    # A worker that stayed would keep its node from the test.
    wait_for("the last test's workers to be gone", lambda: not running.workers())
    names = [f"n{number:02}" for number in range(1, running.nodes + 1)]
    running.client.post("/v1/forgive", {"nodes": []})
    for verb, nodes in (("want", [name for name in names if name not in idle]), ("offer", list(idle))):
        if nodes:
            running.client.post(f"/v1/nodes/{verb}", {"nodes": nodes})

    def free() -> set[str]:
        return {node["name"] for node in running.client.get("/v1/status")["nodes"] if node["job"] is None}

    wait_for("the nodes to be idle", lambda: free() == set(idle))


@pytest.fixture
def state_dir(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A state directory with a short path, because UNIX sockets lie in it."""
    with kept_if_failed(request, "offcut-test-") as root:
        yield root


@pytest.fixture
def up(state_dir: Path) -> Iterator[Callable[..., Running]]:
    """`up(nodes, *options)` starts a controller; at the end it is stopped, and checked to have left nothing."""
    started: list[Running] = []

    def start(nodes: int, *options: str) -> Running:
        started.append(Running(state_dir, nodes, *options))
        return started[-1]

    yield start
    try:
        for running in started:
            running.stop()
    finally:
        for running in started:
            running.kill_everything()
