"""Lightning's Trainer as a job on nodes that come, go and die: the losses are those of a plain loop, undisturbed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import golden
import pytest
from golden import STEPS_PER_EPOCH, Pace, assert_same_training, undisturbed

from offcut.wire.step_records import history

pytestmark = [pytest.mark.live, pytest.mark.frameworks, pytest.mark.xdist_group("live-3")]

SCRIPT, PLAIN = (Path(__file__).with_name(name) for name in ("lightning_loop.py", "own_loop.py"))


def test_the_losses_are_those_of_a_plain_loop(up: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is wanted, and offered again; then a worker is killed."""
    running = up(3)
    epochs = 16
    pace = Pace(tmp_path, epochs * STEPS_PER_EPOCH)
    job = running.submit(SCRIPT, "--epochs", str(epochs), *pace.options, sizes="1:3", checkpoint_age_s=1.0)
    running.until(job, "three nodes", pace.awaiting(lambda shown: shown["size"] == 3 and shown["steps"] > 5))
    running.client.post("/v1/nodes/want", {"nodes": ["n01"]})
    running.until(job, "two nodes", pace.awaiting(lambda shown: shown["size"] == 2))
    running.client.post("/v1/nodes/offer", {"nodes": ["n01"]})
    steps = running.until(job, "three again", pace.awaiting(lambda shown: shown["size"] == 3))["steps"]
    running.until(job, "more steps", pace.awaiting(lambda shown: shown["steps"] > steps))
    running.workers()[0].kill()
    steps = running.job(job)["steps"]
    running.until(job, "three once more", pace.awaiting(lambda shown: shown["size"] == 3 and shown["steps"] > steps))
    pace.to_the_end()
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    monkeypatch.setattr(golden, "SCRIPT", PLAIN)
    assert_same_training(history(running.paths.job(job) / "records"), undisturbed(epochs))
