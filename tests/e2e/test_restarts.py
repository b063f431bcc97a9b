"""What holds over restarts and changed clocks: timers, a release of all nodes, steps and steps done again."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import SCRIPT, STEPS_PER_EPOCH

from live import Running, wait_for
from offcut.wire.step_records import history

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-1")]


def steps_of(running: Running, job: str) -> int:
    return max(history(running.paths.job(job) / "records"), default=0)


@pytest.mark.timeout(300)
@pytest.mark.ci
def test_a_clock_that_is_set_back_by_an_hour(
    up: Callable[..., Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that fails waits half a second, then one: not until the clock has its old time again."""
    clock, script = tmp_path / "clock", tmp_path / "fails.py"
    clock.write_text("3600")
    script.write_text("import sys\n\nsys.exit(1)\n")
    monkeypatch.setenv("OFFCUT_TEST_CLOCK", str(clock))
    running = up(1)
    running.process.kill()
    running.process.wait()
    running.launch(sys.executable, str(Path(__file__).with_name("shifted_up.py")))
    wait_for("the controller", running._answers)
    job = running.submit(script, sizes="1", max_failures=3)
    wait_for("a failure", lambda: running.job(job)["failures"] >= 1)
    clock.write_text("0")
    wait_for("the last failure", lambda: running.job(job)["state"] == "failed")
    running.process.kill()
    running.process.wait()
    # The journal is an hour ahead of the clock now.
    running.start()
    job = running.submit(SCRIPT, "--epochs", "2", sizes="1")
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    nodes = lambda: running.client.get("/v1/status")["nodes"]  # noqa: E731
    wait_for("the release of a node that no job wants", lambda: [node["phase"] for node in nodes()] == ["idle"])


@pytest.mark.timeout(300)
@pytest.mark.ci
def test_a_release_of_all_nodes_holds_until_it_is_undone(up: Callable[..., Running]) -> None:
    running = up(2)
    job = running.submit(SCRIPT, "--epochs", "400", "--pace", "0.05", sizes="1:2")
    running.until(job, "training", lambda shown: shown["steps"] > 5)
    running.client.post("/v1/release", {"nodes": []})
    running.stop()
    running.start()
    assert running.client.get("/v1/status")["claiming"] is False
    running.client.post("/v1/claim", {})
    running.until(job, "training", lambda shown: shown["size"] > 0)
    # Killed while it ends: the next one claims, for nobody has said that it should not.
    running.process.terminate()
    wait_for("its end to begin", lambda: "controller_stopping" in kinds(running))
    running.process.kill()
    running.process.wait()
    running.start()
    running.client.post("/v1/nodes/offer", {"nodes": ["n01", "n02"]})
    running.until(job, "training", lambda shown: shown["size"] > 0)


def kinds(running: Running) -> list[str]:
    with sqlite3.connect(running.paths.journal) as db:
        found = [kind for (kind,) in db.execute("SELECT kind FROM events ORDER BY id DESC LIMIT 10")]
    db.close()
    return found


@pytest.mark.timeout(300)
def test_a_job_that_finishes_while_there_is_no_controller(up: Callable[..., Running]) -> None:
    running = up(2)
    job = running.submit(SCRIPT, "--epochs", "20", "--pace", "0.02", sizes="2")
    running.until(job, "training", lambda shown: shown["steps"] > 5)
    running.process.kill()
    running.process.wait()
    wait_for("the last step", lambda: steps_of(running, job) == 20 * STEPS_PER_EPOCH)
    running.start()
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    for again in (False, True):
        if again:
            running.process.kill()
            running.process.wait()
            running.start()
        shown = running.job(job)
        assert shown["steps"] == 20 * STEPS_PER_EPOCH
        assert shown["samples"] > 0
        assert shown["steps_redone"] == 0


@pytest.mark.timeout(300)
@pytest.mark.ci
def test_steps_that_are_done_again_are_told_though_the_controller_died_too(up: Callable[..., Running]) -> None:
    running = up(1)
    job = running.submit(SCRIPT, "--epochs", "300", "--pace", "0.02", sizes="1", checkpoint_age_s=60.0, max_failures=5)
    running.until(job, "training", lambda shown: shown["steps"] > 80)
    running.process.kill()
    running.process.wait()
    before = steps_of(running, job)
    wait_for("steps without a controller", lambda: steps_of(running, job) > before + 20)
    running.workers()[0].kill()
    running.start()
    running.until(job, "training again", lambda shown: shown["steps_redone"] > 0)
    running.client.post(f"/v1/jobs/{job}/pause")
    wait_for("the worker's end", lambda: not running.workers())
    told = running.job(job)["steps_redone"]
    twice = sum(len(step.applied_in) > 1 for step in history(running.paths.job(job) / "records").values())
    # It began at the beginning: whatever it had done, and had been heard of, is done again.
    assert told >= before
    running.process.kill()
    running.process.wait()
    running.start()
    assert running.job(job)["steps_redone"] == told
    assert twice <= told + 40
