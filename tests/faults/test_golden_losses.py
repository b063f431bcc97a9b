"""Four real trainings under a dozen membership events each: the loss curve is the undisturbed one's.

`python -m pytest tests/faults/test_golden_losses.py -s` prints the largest difference of each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from golden import Pace

from live import Running, prepare_nodes
from offcut.wire.step_records import StepHistory, history
from offcut.wire.worker_env import ENV_JOB_DIR, ENV_RECORDS

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-2"), pytest.mark.timeout(600)]

SCRIPT = Path(__file__).with_name("golden_training.py")
SAMPLES = 1797
#: Of 15 steps each: twice what a dozen events take on a machine of their own.
EPOCHS = 30
EVENTS = 12
#: How far the losses may be apart. Members add gradients in another order than one process does, and training magnifies
#: the last bit, Adam's division by small gradients above all: so these three run in double precision, where a real
#: difference would show and rounding does not. bfloat16 activations carry 4e-3.
LIMITS = {"mlp": 1e-8, "cnn": 1e-8, "transformer": 1e-8, "autocast": 4e-2}
DOUBLE = ("mlp", "cnn", "transformer")


def undisturbed(directory: Path, *arguments: str) -> dict[int, StepHistory]:
    environment = {**os.environ, ENV_JOB_DIR: str(directory), ENV_RECORDS: "1", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, str(SCRIPT), *arguments], env=environment, check=True)
    return history(directory / "records")


@pytest.mark.parametrize(
    "training", [pytest.param(name, marks=() if name == "mlp" else pytest.mark.ci) for name in LIMITS]
)
def test_losses_are_the_undisturbed_ones(cluster: Running, tmp_path: Path, training: str) -> None:
    arguments = [training, "--epochs", str(EPOCHS), *(["--double"] if training in DOUBLE else [])]
    pace = Pace(tmp_path, EPOCHS * -(-SAMPLES // 128))
    prepare_nodes(cluster, ["n01", "n02", "n03"])
    job = cluster.submit(SCRIPT, *arguments, *pace.options, sizes="1:3", max_failures=9)

    def further(size: int) -> None:
        """Wait for a few steps at this size; they are slow while a worker starts."""
        pace.set(0.5)
        shown = cluster.until(job, f"size {size}", pace.awaiting(lambda shown: shown["size"] == size))
        pace.set(pace.TURN_S)
        goal = max(shown["steps"], 1) + 3
        cluster.until(job, "more steps", pace.awaiting(lambda shown: shown["steps"] >= goal))

    events = 0
    further(3)
    while events < EVENTS:
        for node in ("n03", "n01"):  # the last and the first member leave, and come back
            cluster.client.post("/v1/nodes/want", {"nodes": [node]})
            further(2)
            cluster.client.post("/v1/nodes/offer", {"nodes": [node]})
            further(3)
        for victim in (0, -1):  # the oldest and the newest worker die, and others join in their place
            before = cluster.job(job)["generation"]
            cluster.workers()[victim].kill()
            noticed = pace.awaiting(lambda shown, before=before: shown["generation"] > before)
            cluster.until(job, "its end noticed", noticed)
            further(3)
        events += 8
    pace.to_the_end()
    cluster.until(job, "the end", lambda shown: shown["state"] == "finished")
    steps = history(cluster.paths.job(job) / "records")
    reference = undisturbed(tmp_path, *arguments)
    assert sorted(steps) == sorted(reference)
    apart = max(abs(record.loss - reference[step].loss) for step, record in steps.items())
    print(f"\n{training}: {events} membership events, {len(steps)} steps, max |loss - undisturbed| = {apart:.2e}")
    counted: dict[int, Counter[int]] = {}
    for record in steps.values():
        counted.setdefault(record.epoch, Counter()).update(record.samples)
    assert all(counter == Counter(range(SAMPLES)) for counter in counted.values())
    assert apart <= LIMITS[training]
