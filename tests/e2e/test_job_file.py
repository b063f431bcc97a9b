"""The example's job file under a real controller: submitted by the command line, resized, and the same training."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from live import Running, prepare_nodes
from offcut.wire.step_records import history
from offcut.wire.worker_env import ENV_GOAL, ENV_JOB_DIR, ENV_RECORDS

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-1")]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: Of the example's 1500 training samples, in batches of 128: seven data epochs.
GOAL_SAMPLES = 7 * 1500


def test_example_job_file_is_submitted_shrinks_and_trains_as_it_does_alone(running: Running, tmp_path: Path) -> None:
    for name in ("digits.py", "digits.toml"):
        shutil.copy(EXAMPLES / "session" / name, tmp_path)
    prepare_nodes(running, ["n01", "n02"])
    submitted = subprocess.run(
        [
            *(sys.executable, "-m", "offcut", "submit", str(tmp_path / "digits.toml"), "--step-records", "--json"),
            *("--goal-samples", str(GOAL_SAMPLES), "--state", str(running.paths.root)),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    job = json.loads(submitted.stdout)["id"]
    running.until(job, "two nodes", lambda shown: shown["size"] == 2 and shown["steps"] > 5)
    running.client.post("/v1/nodes/want", {"nodes": ["n01"]})
    running.until(job, "the end", lambda shown: shown["state"] == "finished")
    steps = history(running.paths.job(job) / "records")
    assert len({record.generation for record in steps.values()}) > 1, "it was resized"

    alone = tmp_path / "alone"
    environment = {**os.environ, ENV_JOB_DIR: str(alone), ENV_RECORDS: "1", "OMP_NUM_THREADS": "1"}
    environment[ENV_GOAL] = str(GOAL_SAMPLES)
    command = tomllib.loads((EXAMPLES / "session" / "digits.toml").read_text())["command"]
    subprocess.run([sys.executable, *command], cwd=tmp_path, env=environment, check=True, capture_output=True)
    reference = history(alone / "records")
    assert sorted(steps) == sorted(reference)
    for step, record in steps.items():
        assert sorted(record.samples) == sorted(reference[step].samples), step
        # In single precision: the members' gradients are added in another order than one process does.
        assert record.loss == pytest.approx(reference[step].loss, abs=5e-3), step
