"""Scripts that do not use offcut: ended and launched again at every resize, and no process of them left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from golden import Pace

from live import Running, prepare_nodes, shared_controller, wait_for

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-1")]


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A controller of two nodes, which all tests here share.

    A release may take longer than a second on a busy machine.
    """
    with shared_controller(request, 2, "--grace", "30") as running:
        yield running


HERE = Path(__file__).parent
DDP = HERE / "ddp_train.py"
AWKWARD = HERE / "awkward_restart.py"


def submit(running, script: Path, *arguments: str, **fields: Any) -> str:
    """Submit a job of mode `restart` for which a relaunch costs nothing, so that it takes every node it can have."""
    fields = {"mode": "restart", "step_records": False, "grow_cost_s": 0.0, "shrink_cost_s": 0.0, **fields}
    return running.submit(script, *arguments, **fields)


def trail(directory: Path) -> list[dict[str, Any]]:
    """Return what every rank of every launch recorded."""
    lines = [line for path in directory.glob("trail/*.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.endswith("}")]


def losses(directory: Path) -> dict[int, float]:
    found: dict[int, float] = {}
    for entry in trail(directory):
        if "step" in entry:
            assert found.setdefault(entry["step"], entry["loss"]) == pytest.approx(entry["loss"], abs=1e-9)
    return found


def until_steps_at(running, job: str, world: int) -> int:
    """Wait until a launch with this many ranks has done some steps. Return its first step."""
    directory = running.paths.job(job)

    def begun() -> int | None:
        for path in directory.glob("trail/*.jsonl"):
            entries = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
            if entries and entries[0]["world"] == world and len(entries) > 15:
                return int(entries[0]["launched_at"])
        return None

    running.until(job, f"steps with {world} ranks", lambda _: begun() is not None)
    return begun() or 0


@pytest.mark.timeout(300)
def test_a_plain_ddp_script_grows_survives_a_kill_and_trains_as_if_undisturbed(
    running: Running, tmp_path: Path
) -> None:
    steps = 250
    prepare_nodes(running, ["n01"])
    pace = Pace(tmp_path, steps)
    job = submit(running, DDP, "--steps", str(steps), *pace.options, sizes="1:2", ranks_per_node=2)
    directory = running.paths.job(job)
    assert until_steps_at(running, job, 2) == 0
    pace.set(0.15)
    running.client.post("/v1/nodes/offer", {"nodes": ["n02"]})
    assert until_steps_at(running, job, 4) > 0, "it resumed from its own checkpoint"
    generation = running.job(job)["generation"]
    running.agents()[0].kill()
    running.until(job, "another launch", lambda shown: shown["generation"] >= generation + 2 and shown["size"])
    pace.to_the_end()
    shown = running.until(job, "the end", lambda shown: shown["state"] == "finished")
    assert shown["failures"] == 0, "ranks that fail because a node died do not make a failure of the job"

    alone = tmp_path / "alone"
    alone.mkdir()
    environment = {**os.environ, "OFFCUT_JOB_DIR": str(alone), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(DDP), "--steps", str(steps)], env=environment, check=True)
    assert losses(directory) == pytest.approx(losses(alone), abs=1e-9)
    assert set(losses(directory)) == set(range(1, steps + 1))


def test_a_script_that_ignores_sigterm_is_gone_within_the_grace_and_its_children_too(running: Running) -> None:
    prepare_nodes(running, ["n01", "n02"])
    before = len(running.client.get("/v1/statistics")["cluster"]["hand_backs"])
    job = submit(running, AWKWARD, "daemon", sizes="1:2", restart_grace_s=0.5)
    directory = running.paths.job(job)
    running.until(job, "both nodes", lambda _: launches(directory)[-2:] in (["0/2", "1/2"], ["1/2", "0/2"]))
    words = running.client.get(f"/v1/jobs/{job}/why")["words"]
    assert any("launches its script again" in line and "0 s of progress" in line for line in words), words
    running.client.post("/v1/nodes/want", {"nodes": ["n01"]})
    running.until(job, "a launch on the other", lambda _: launches(directory)[-1] == "0/1")
    backs = wait_for("the release", lambda: running.client.get("/v1/statistics")["cluster"]["hand_backs"][before:])
    assert [back["node"] for back in backs] == ["n01"]
    assert not backs[0]["killed"], "the agent was done before the queue lost its patience"
    wait_for("the children of two launches to be gone", lambda: len(children(directory)) == 2)
    assert running.client.post(f"/v1/jobs/{job}/cancel")["state"] == "cancelled"
    wait_for("everything to be gone", lambda: not children(directory))


@pytest.mark.ci
def test_a_frozen_node_does_not_keep_its_ranks_beside_the_next_launch(running: Running) -> None:
    prepare_nodes(running, ["n01"])
    job = submit(running, AWKWARD, "stubborn", sizes="1")
    directory = running.paths.job(job)
    running.until(job, "a launch", lambda _: len(children(directory)) == 1)
    frozen, before = running.agents()[0], {child.pid for child in children(directory)}
    frozen.send_signal(signal.SIGSTOP)
    wait_for("its agent to be ended", lambda: not frozen.is_running())
    wait_for("another launch", lambda: launches(directory) == ["0/1", "0/1"])
    running.client.post(f"/v1/jobs/{job}/cancel")
    wait_for("the new launch to be gone", lambda: not [p for p in children(directory) if p.pid not in before])


def launches(directory: Path) -> list[str]:
    path = directory / "launches"
    return path.read_text().splitlines() if path.exists() else ["none"]


def children(directory: Path) -> list[psutil.Process]:
    mark = f"child of {directory}"
    return [p for p in psutil.process_iter(["cmdline"]) if mark in " ".join(p.info["cmdline"] or ())]


def test_a_script_that_crashes_again_and_again_fails_with_its_reason(running: Running) -> None:
    prepare_nodes(running, ["n01", "n02"])
    job = submit(running, AWKWARD, "crash", sizes="2", max_failures=2)
    shown = running.until(job, "its failure", lambda shown: shown["state"] == "failed")
    assert "not for the likes of you" in shown["reason"]
    assert "3 failures in a row" in shown["reason"]
    assert sorted(launches(running.paths.job(job))) == ["0/2"] * 3 + ["1/2"] * 3


def test_a_controller_that_dies_finds_the_launch_as_it_left_it(running: Running) -> None:
    prepare_nodes(running, ["n01", "n02"])
    job = submit(running, AWKWARD, "serve", sizes="1:2", ranks_per_node=2)
    directory = running.paths.job(job)
    running.until(job, "two nodes", lambda _: [rank[-1] for rank in launches(directory)[-4:]] == ["4"] * 4)
    before = launches(directory)
    running.process.kill()
    running.process.wait()
    running.start()
    running.until(job, "its members again", lambda shown: shown["size"] == 2)
    (directory / "end").touch()
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    assert launches(directory) == before, "nobody was launched again because of it"
