"""The journal is replaced by an older copy under a training that went on: the job continues, and is told why."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from golden import SCRIPT, STEPS_PER_EPOCH, Pace, assert_same_training, undisturbed

from live import Running, wait_for
from offcut.wire.step_records import history

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-3")]

EPOCHS = 50


def backup(running: Running) -> None:
    with sqlite3.connect(running.paths.journal) as there, sqlite3.connect(running.paths.root / "backup") as copy:
        there.backup(copy)
    there.close()
    copy.close()


def restore(running: Running) -> None:
    """Kill the controller, restore the older journal, and start again."""
    running.process.kill()
    running.process.wait()
    for path in running.paths.root.glob("journal.sqlite*"):
        path.unlink()
    (running.paths.root / "backup").rename(running.paths.journal)


@pytest.mark.ci
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "all_of_it",
    [pytest.param(False, id="the journal"), pytest.param(True, id="the whole directory")],
)
def test_the_job_goes_on_and_loses_nothing(up: Callable[..., Running], tmp_path: Path, all_of_it: bool) -> None:
    running = up(3)
    running.client.post("/v1/nodes/want", {"nodes": ["n02", "n03"]})
    pace = Pace(tmp_path, EPOCHS * STEPS_PER_EPOCH)
    job = running.submit(SCRIPT, "--epochs", str(EPOCHS), *pace.options, sizes="1:3")
    running.until(job, "one node", lambda shown: shown["size"] == 1 and shown["steps"] > 5)
    backup(running)
    for node, size in (("n02", 2), ("n03", 3)):
        running.client.post("/v1/nodes/offer", {"nodes": [node]})
        grown = pace.awaiting(lambda shown, size=size: shown["size"] == size)
        newest = running.until(job, f"{size} nodes", grown)
    running.until(job, "steps under it", lambda shown: shown["steps"] > newest["steps"] + 20)
    pace.set(0.2)  # it must not end before the controller is there again
    restore(running)
    if all_of_it:
        running.paths.numbers.unlink()
    running.start()
    newer = pace.awaiting(lambda shown: shown["generation"] > newest["generation"])
    after = running.until(job, "a new generation", newer)
    assert any("the journal is older than what has run since" in text for text in running.story(job))
    pace.set(pace.TURN_S)
    running.until(job, "progress", lambda shown: shown["steps"] > after["steps"] + 50)
    pace.to_the_end()
    shown = running.until(job, "the end", lambda shown: shown["state"] == "finished", patience_s=300.0)
    assert shown["steps"] == EPOCHS * STEPS_PER_EPOCH
    assert_same_training(history(running.paths.job(job) / "records"), undisturbed(EPOCHS))


def test_a_new_journal_beside_old_jobs_takes_nothing_of_theirs(up: Callable[..., Running]) -> None:
    running = up(1)
    job = running.submit(SCRIPT, "--epochs", "400", "--pace", "0.05", sizes="1", checkpoint_age_s=0.5)
    running.until(job, "training", lambda shown: shown["steps"] > 20)
    checkpoints = running.paths.job(job) / "checkpoints"
    wait_for("a checkpoint", lambda: checkpoints.is_dir() and any(checkpoints.glob("step-*")))
    running.process.kill()
    running.process.wait()
    for path in running.paths.root.glob("journal.sqlite*"):
        path.unlink()
    running.start()
    again = running.submit(SCRIPT, "--epochs", "2", sizes="1")
    assert again != job
    shown = running.until(again, "the end", lambda shown: shown["state"] == "finished")
    assert shown["steps"] == 2 * STEPS_PER_EPOCH
    steps = history(running.paths.job(again) / "records")
    assert min(steps) == 1, "it began at the beginning"
