"""A real transformers Trainer as a job of mode `restart`: grown, killed, and trained as if undisturbed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-1"), pytest.mark.frameworks]

SCRIPT = Path(__file__).with_name("hf_train.py")
STEPS = 120


def losses(out: Path) -> list[float]:
    return [entry["loss"] for entry in json.loads((out / "final.json").read_text())["log_history"] if "loss" in entry]


def saved(out: Path) -> int:
    """Return the step of the newest whole checkpoint."""
    return max((int(path.parent.name[11:]) for path in out.glob("checkpoint-*/trainer_state.json")), default=0)


@pytest.mark.timeout(600)
def test_a_trainer_grows_survives_a_kill_and_learns_the_same(up: Callable, tmp_path: Path) -> None:
    running = up(2, "--preload", "transformers.trainer")
    running.client.post("/v1/nodes/want", {"nodes": ["n02"]})
    out = tmp_path / "out"
    job = running.submit(
        *(SCRIPT, "--steps", str(STEPS), "--pace", "0.05", "--out", str(out)),
        mode="restart",
        step_records=False,
        grow_cost_s=0.0,
        shrink_cost_s=0.0,
        sizes="1:2",
    )

    def until_saved_at(size: int) -> None:
        shown = running.until(job, f"size {size}", lambda shown: shown["size"] == size, 200.0)
        before = saved(out)
        running.until(job, f"a checkpoint at {size}", lambda later: saved(out) > before, 200.0)
        assert running.job(job)["generation"] == shown["generation"]

    until_saved_at(1)
    running.client.post("/v1/nodes/offer", {"nodes": ["n02"]})
    until_saved_at(2)
    running.agents()[0].kill()
    shown = running.until(job, "the end", lambda shown: shown["state"] == "finished", 300.0)
    assert shown["failures"] == 0

    alone = tmp_path / "alone"
    command = [sys.executable, str(SCRIPT), "--steps", str(STEPS), "--out", str(alone)]
    subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True)
    reference = losses(alone)
    assert len(reference) == STEPS
    assert reference[-1] < reference[0] - 0.5, "it learns"
    assert losses(out) == pytest.approx(reference, abs=1e-5), "in single precision"
