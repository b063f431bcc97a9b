"""Members die, freeze and are cut off at named points: nothing is lost and nothing counts twice."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from typing import Any

import pytest
from golden import SAMPLES, SCRIPT, STEPS_PER_EPOCH, undisturbed

from faults.matrix import EARLY, JOIN_AT, Case, cases
from live import Running, wait_for
from offcut.wire.records import StepHistory, history

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

#: Of the data, in a case that waits for something to be found out, and in the others.
EPOCHS, QUICK_EPOCHS = 7, 5
PACE_S = 0.05


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[int, StepHistory]:
    """The same script by plain Python, undisturbed; the shorter training is the beginning of the longer one."""
    return undisturbed(tmp_path_factory.mktemp("matrix") / "reference", EPOCHS)


def _free(cluster: Running) -> set[str]:
    return {node["name"] for node in cluster.client.get("/v1/status")["nodes"] if node["job"] is None}


def begin(cluster: Running, plans: tuple[dict[str, Any], ...] = (), epochs: int = QUICK_EPOCHS, **fields: Any) -> str:
    """Two members train; the third node is offered at step JOIN_AT."""
    cluster.client.post("/v1/nodes/offer", {"nodes": ["n01", "n02"]})
    cluster.client.post("/v1/nodes/want", {"nodes": ["n03"]})
    # What the last case froze or killed has to be gone first; a worker that stayed would keep its node from this case.
    wait_for("two nodes that nobody has", lambda: _free(cluster) == {"n01", "n02"})
    wait_for("the last case's workers to be gone", lambda: not cluster.workers(), 20.0)
    fields = {"sizes": "1:3", "checkpoint_age_s": 1.0, "max_failures": 3, **fields}
    env = {"OFFCUT_FAULTS": json.dumps(plans)}
    job = cluster.submit(SCRIPT, "--epochs", str(epochs), "--pace", str(PACE_S), env=env, **fields)
    cluster.until(job, "some steps", lambda shown: shown["steps"] >= JOIN_AT - EARLY)
    cluster.client.post("/v1/nodes/offer", {"nodes": ["n03"]})
    return job


def check(
    cluster: Running, job: str, reference: dict[int, StepHistory], redone: int, epochs: int = QUICK_EPOCHS
) -> None:
    cluster.until(job, "the end", lambda shown: shown["state"] == "finished")
    steps = history(cluster.paths.job(job) / "records")
    assert sorted(steps) == list(range(1, epochs * STEPS_PER_EPOCH + 1)), cluster.story(job)
    for step, record in steps.items():
        assert record.loss == pytest.approx(reference[step].loss, abs=1e-9), (step, cluster.story(job))
    counted: dict[int, Counter[int]] = {}
    for record in steps.values():
        counted.setdefault(record.data_epoch, Counter()).update(record.samples)
    assert len(counted) == epochs
    assert all(counter == Counter(range(SAMPLES)) for counter in counted.values()), cluster.story(job)
    again = sum(len(record.applied_in) - 1 for record in steps.values())
    assert again <= redone, cluster.story(job)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=() if case.default else pytest.mark.slow) for case in cases()],
)
def test_fault(cluster: Running, reference: dict[int, StepHistory], case: Case) -> None:
    epochs = EPOCHS if case.waits else QUICK_EPOCHS
    job = begin(cluster, case.plans, epochs)
    check(cluster, job, reference, case.redone, epochs)
    struck = {path.name.split("-")[1] for path in cluster.paths.job(job).glob("fault-*")}
    planned = {str(number) for number in range(len(case.plans))}
    assert struck == planned, ("a fault did not strike", cluster.stories(job))


def test_the_rendezvous_store_dies(cluster: Running, reference: dict[int, StepHistory]) -> None:
    """Training goes on without it; the next epoch forms with its successor."""
    job = begin(cluster)
    cluster.until(job, "three members", lambda shown: shown["size"] == 3)
    old = json.loads(cluster.paths.rendezvous.read_text())
    os.kill(old["pid"], signal.SIGKILL)
    cluster.workers()[-1].kill()
    check(cluster, job, reference, redone=1)

    def another() -> bool:
        try:
            return json.loads(cluster.paths.rendezvous.read_text())["pid"] != old["pid"]
        except (OSError, ValueError):
            return False

    wait_for("a new store", another)
