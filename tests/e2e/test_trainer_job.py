"""The LoRA example with transformers' Trainer as a job of mode `session`: grown, and a worker of it killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-1"), pytest.mark.frameworks]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def told(text: str) -> tuple[float, int]:
    """Return the loss and the number of steps that the example prints at its end."""
    found = re.findall(r"loss ([\d.]+) on the held-out texts after (\d+) steps", text)
    assert len(found) == 1, text
    return float(found[0][0]), int(found[0][1])


@pytest.mark.timeout(600)
def test_a_lora_example_grows_survives_a_kill_and_learns_the_same(up: Callable, tmp_path: Path) -> None:
    running = up(2, "--preload", "transformers.trainer")
    running.client.post("/v1/nodes/want", {"nodes": ["n02"]})
    arguments = ("--epochs", "20", "--out")
    job = running.submit(EXAMPLES / "elastic" / "lora_trainer.py", *arguments, str(tmp_path / "job"), sizes="1:2")
    running.until(job, "a step", lambda shown: shown["steps"] > 0, 200.0)
    running.client.post("/v1/nodes/offer", {"nodes": ["n02"]})
    steps = running.until(job, "two nodes", lambda shown: shown["size"] == 2, 200.0)["steps"]
    running.until(job, "a step of two", lambda shown: shown["steps"] > steps, 200.0)
    running.workers()[0].kill()
    shown = running.until(job, "the end", lambda shown: shown["state"] == "finished", 300.0)
    # The kill, which is forgiven once another generation has formed; the training may end before.
    assert shown["failures"] <= 1

    plain = [sys.executable, str(EXAMPLES / "plain" / "lora_trainer.py"), *arguments, str(tmp_path / "plain")]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    alone = told(subprocess.run(plain, env=env, check=True, capture_output=True, text=True).stdout)
    assert shown["steps"] == alone[1]
    logs = running.paths.job(job).rglob("*.log")
    loss, steps = told("\n".join(path.read_text() for path in logs))
    # AdamW divides by the size of the gradients: where these are rounding alone, so are the updates.
    assert (loss, steps) == (pytest.approx(alone[0], rel=0.03), alone[1])
    assert (tmp_path / "job" / "adapter" / "adapter_model.safetensors").exists()
