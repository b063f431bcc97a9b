"""The controller dies by kill -9, again and again, and is started again: jobs go on, and nothing is lost."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from golden import SCRIPT, STEPS_PER_EPOCH, Pace, assert_same_training, undisturbed

from live import PATIENCE_S, wait_for
from offcut.errors import OffcutError
from offcut.wire.step_records import history

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-1")]

#: The queue's patience: agents need less than a second on a machine of their own.
GRACE_S = 30.0


def provoke(running, choose: random.Random) -> None:
    """Cause an event that the controller must answer."""
    names = [f"n0{i}" for i in (1, 2, 3)]
    verb = choose.choice(("want", "offer", "offer"))
    with suppress(OffcutError):  # it has just died, or is not up yet: that is what this is about
        running.client.post(f"/v1/nodes/{verb}", {"nodes": [choose.choice(names)]})


def crash_campaign(up: Callable, tmp_path: Path, crashes: int, epochs: int, seed: int) -> None:
    choose = random.Random(seed)
    running = up(3, "--grace", str(GRACE_S))
    pace = Pace(tmp_path, epochs * STEPS_PER_EPOCH)
    pace.set(0.05)
    job = running.submit(
        SCRIPT, "--epochs", str(epochs), *pace.options, sizes="1:3", checkpoint_age_s=2.0, max_failures=5
    )
    running.until(job, "training", lambda shown: shown["steps"] > 5)
    running.process.kill()
    running.process.wait()
    for _ in range(crashes):
        write, when = str(choose.randint(1, 9)), choose.choice(("before", "after"))
        running.launch(sys.executable, str(Path(__file__).with_name("crashing_up.py")), write, when)
        give_up_s = time.monotonic() + PATIENCE_S
        while running.process.poll() is None:
            assert time.monotonic() < give_up_s, "nothing happened that it could have died of"
            provoke(running, choose)
            time.sleep(0.05)
    running.start()
    pace.to_the_end()
    running.client.post("/v1/nodes/offer", {"nodes": ["n01", "n02", "n03"]})
    shown = running.until(job, "the end", lambda shown: shown["state"] == "finished", patience_s=300.0)
    assert shown["steps"] == epochs * STEPS_PER_EPOCH
    statistics = running.client.get("/v1/statistics")["cluster"]
    assert [item for item in statistics["hand_backs"] if item["killed"] or item["took_s"] > GRACE_S] == []
    assert_same_training(history(running.paths.job(job) / "records"), undisturbed(epochs))


def test_dies_at_journal_writes(up: Callable, tmp_path: Path) -> None:
    crash_campaign(up, tmp_path, crashes=2, epochs=20, seed=1)


@pytest.mark.ci
@pytest.mark.timeout(400)
def test_dies_at_more_journal_writes(up: Callable, tmp_path: Path) -> None:
    crash_campaign(up, tmp_path, crashes=6, epochs=40, seed=3)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_dies_at_forty_journal_writes(up: Callable, tmp_path: Path) -> None:
    crash_campaign(up, tmp_path, crashes=40, epochs=200, seed=2)


def test_workers_train_on_while_there_is_no_controller(up: Callable) -> None:
    running = up(2)
    job = running.submit(SCRIPT, "--epochs", "5000", "--pace", "0.02", sizes="2")
    before = running.until(job, "training", lambda shown: shown["steps"] > 20)
    records = running.paths.job(job) / "records"
    running.process.kill()
    running.process.wait()
    step_then = max(history(records))
    give_up_s = time.monotonic() + PATIENCE_S
    while max(history(records)) < step_then + 50:
        assert time.monotonic() < give_up_s, "training stood still without a controller"
        time.sleep(0.05)
    running.start()
    after = running.until(job, "progress", lambda shown: shown["steps"] > step_then + 50)
    assert after["generation"] == before["generation"], "the membership was not changed"
    running.client.post(f"/v1/jobs/{job}/cancel")


@pytest.mark.ci
def test_a_full_disk_stops_it_with_a_sentence_and_everything_is_released(up: Callable) -> None:
    running = up(2)
    job = running.submit(SCRIPT, "--epochs", "400", "--pace", "0.05", sizes="1:2")
    running.until(job, "training", lambda shown: shown["steps"] > 20)
    running.process.kill()
    running.process.wait()
    running.launch(sys.executable, str(Path(__file__).with_name("crashing_up.py")), "6", "full")
    choose = random.Random(3)
    give_up_s = time.monotonic() + PATIENCE_S
    while running.process.poll() is None:
        assert time.monotonic() < give_up_s, "nothing happened that it could have written down"
        provoke(running, choose)
        time.sleep(0.05)
    assert running.process.returncode == 2
    said = (running.paths.root / "controller.log").read_text().splitlines()
    assert any(line.startswith("offcut: The journal cannot be used") for line in said)
    wait_for("every process to end", lambda: not running.processes())
    running.start()
    running.until(job, "going on", lambda shown: shown["size"] > 0)
    running.client.post(f"/v1/jobs/{job}/cancel")


def test_a_second_controller_is_refused(up: Callable) -> None:
    running = up(1)
    second = subprocess.run(
        [sys.executable, "-m", "offcut", "up", "--state", str(running.paths.root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode != 0
    assert "belongs to a running controller" in second.stderr
    assert "Traceback" not in second.stderr
    assert running.client.get("/v1/status")["claiming"]
