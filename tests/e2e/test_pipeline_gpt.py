"""The example of a pipeline job, on four nodes through four resizes: the loss of an undisturbed run, to 1e-9."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from offcut.wire.jobspec import read_job_file
from offcut.wire.step_records import StepHistory, history
from offcut.wire.worker_env import ENV_GOAL, ENV_JOB_DIR, ENV_RECORDS

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-3")]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def alone(directory: Path, samples: int) -> dict[int, StepHistory]:
    """Run the same script by plain Python, the whole model in one process, for the same number of samples."""
    directory.mkdir()
    environment = {
        **os.environ, ENV_JOB_DIR: str(directory), ENV_RECORDS: "1", ENV_GOAL: str(samples),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, str(EXAMPLES / "pipeline" / "pipeline_gpt.py"), "--double", "--epochs", "1000"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return history(directory / "records")


@pytest.mark.timeout(400)
def test_four_resizes_leave_the_loss_as_it_was(up: Callable, tmp_path: Path) -> None:
    running = up(4)
    running.client.post("/v1/nodes/want", {"nodes": ["n03", "n04"]})
    spec = read_job_file(EXAMPLES / "pipeline" / "pipeline_gpt.toml").model_copy(
        update={"command": ["pipeline_gpt.py", "--double", "--epochs", "1000"], "step_records": True}
    )
    job = running.client.post("/v1/jobs", spec.model_dump(exclude_unset=True))["id"]
    assert running.job(job)["sizes"] == "2:4", "those that have a plan"
    for verb, nodes, size in (
        ("offer", [], 2), ("offer", ["n03", "n04"], 4), ("want", ["n01"], 3), ("want", ["n02"], 2),
        ("offer", ["n01"], 3),
    ):  # fmt: skip
        if nodes:
            running.client.post(f"/v1/nodes/{verb}", {"nodes": nodes})
        running.until(job, f"{size} nodes", lambda shown, size=size: shown["size"] == size)
        steps = running.job(job)["steps"]
        running.until(job, "steps at that size", lambda shown, steps=steps: shown["steps"] >= steps + 4)
    running.client.post(f"/v1/jobs/{job}/cancel")
    stable = running.until_ended(job)["steps"]
    steps = history(running.paths.job(job) / "records")
    samples = sum(len(steps[step].samples) for step in range(1, stable + 1))
    reference = alone(tmp_path / "alone", samples)
    assert len(reference) == stable
    seen: dict[int, Counter[int]] = {}
    for step in range(1, stable + 1):
        assert steps[step].loss == pytest.approx(reference[step].loss, abs=1e-9), step
        assert sorted(steps[step].samples) == sorted(reference[step].samples), step
        seen.setdefault(steps[step].epoch, Counter()).update(steps[step].samples)
    assert all(times == 1 for counter in seen.values() for times in counter.values())
    print(f"{stable} steps, largest difference of the loss", max(
        abs(steps[step].loss - reference[step].loss) for step in range(1, stable + 1)
    ))  # fmt: skip
