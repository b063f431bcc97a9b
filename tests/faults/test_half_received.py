"""The only holder of the state dies while it gives it, and there is no checkpoint: the job begins again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden import SCRIPT, STEPS_PER_EPOCH, assert_same_training, undisturbed

from live import Running, prepare_nodes
from offcut.torch.membership.state_transfer import CHUNK_BYTES
from offcut.wire.step_records import history

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-2")]

EPOCHS = 4
#: The first chunk, with all parameters in it, has arrived; the second is not sent.
FAULT = {"point": "giving", "how": "kill", "rank": 0, "generation": 2, "pass": 1}


def test_the_job_begins_again_from_the_script_s_first_values(cluster: Running, tmp_path: Path) -> None:
    ballast_mib = str(3 * CHUNK_BYTES >> 21)
    prepare_nodes(cluster, ["n01"])
    job = cluster.submit(
        SCRIPT, "--epochs", str(EPOCHS), "--pace", "0.05", "--ballast-mib", ballast_mib, sizes="1:2",
        checkpoint_age_s=3600.0, max_failures=3, env={"OFFCUT_FAULTS": json.dumps([FAULT])},
    )  # fmt: skip
    cluster.until(job, "some steps", lambda shown: shown["steps"] >= 8)
    cluster.client.post("/v1/nodes/offer", {"nodes": ["n02"]})
    cluster.until(job, "the end", lambda shown: shown["state"] == "finished")
    directory = cluster.paths.job(job)
    assert list(directory.glob("fault-*")), ("the fault did not strike", cluster.stories(job))
    steps = history(directory / "records")
    assert all(len(steps[step].applied_in) == 2 for step in range(1, 9)), "nobody had the state any more"
    assert sorted(steps) == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    assert_same_training(steps, undisturbed(EPOCHS))
