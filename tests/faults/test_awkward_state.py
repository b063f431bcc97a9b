"""Two optimizers, a state other than tensors, loading processes: members join and updates fail on some of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from live import Running, prepare_nodes
from offcut.wire.step_records import history
from offcut.wire.worker_env import ENV_JOB_DIR, ENV_RECORDS

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-2")]

SCRIPT = Path(__file__).with_name("two_optimizers.py")
EPOCHS, STEPS_PER_EPOCH = 8, 11
#: The first reduce of a step is the update's: at step 20 one member does not see it end, at step 50 one dies in it.
FAULTS = (
    {"point": "after-reduce", "how": "break", "rank": 1, "step": 20},
    {"point": "after-reduce", "how": "kill", "rank": 0, "step": 50},
)


def test_updates_that_fail_on_some_members_and_a_joiner(cluster: Running, tmp_path: Path) -> None:
    prepare_nodes(cluster, ["n01", "n02"])
    env = {"OFFCUT_FAULTS": json.dumps(FAULTS)}
    job = cluster.submit(SCRIPT, "--epochs", str(EPOCHS), "--pace", "0.05", sizes="1:3", max_failures=3, env=env)
    cluster.until(job, "the update that failed on one", lambda shown: shown["steps"] >= 25)
    cluster.client.post("/v1/nodes/offer", {"nodes": ["n03"]})
    cluster.until(job, "a joiner", lambda shown: shown["size"] == 3)
    cluster.until(job, "the end", lambda shown: shown["state"] == "finished")
    directory = cluster.paths.job(job)
    steps = history(directory / "records")
    environment = {**os.environ, ENV_JOB_DIR: str(tmp_path), ENV_RECORDS: "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), "--epochs", str(EPOCHS)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    alone = history(tmp_path / "records")
    assert sorted(steps) == sorted(alone) == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    for step, record in steps.items():
        assert record.loss == pytest.approx(alone[step].loss, abs=1e-9), (step, cluster.story(job))
    assert len(list(directory.glob("fault-*"))) == len(FAULTS), "a fault did not strike"
