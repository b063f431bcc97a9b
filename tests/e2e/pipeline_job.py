"""The pipeline job that the live tests run, its plans, and the result that it must have in any case."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from offcut.pipeline.plan import Plan, Stage
from offcut.pipeline.plan_set import PlanSet
from offcut.wire.step_records import StepHistory, history
from offcut.wire.worker_env import ENV_JOB_DIR, ENV_RECORDS

SCRIPT = Path(__file__).with_name("train_pipeline.py")
LAYERS, STEPS_PER_EPOCH = 6, 11

#: Name of a plan: schedule, cuts, replicas.
SHAPES = {
    "1": ("1f1b", (0, 6), (1,)),
    "2": ("1f1b", (0, 2, 6), (1, 1)),
    "3": ("1f1b-link", (0, 2, 3, 6), (1, 1, 1)),
    "4": ("1f1b-link", (0, 1, 3, 5, 6), (1, 1, 1, 1)),
    "2x2": ("1f1b", (0, 4, 6), (2, 2)),
    "2-1": ("1f1b", (0, 3, 6), (2, 1)),
}


def plan(name: str) -> Plan:
    schedule, cuts, replicas = SHAPES[name]
    stages = tuple(
        Stage(
            first_layer=first, end_layer=end, place=s, forward_s=0.001, backward_s=0.002, weight_grad_s=0.001,
            hop_s=0.0005 if s < len(cuts) - 2 else 0.0, sync_s=0.0, parameter_bytes=0.0, state_bytes=0.0,
            stored_bytes=1.0,
        )
        for s, (first, end) in enumerate(pairwise(cuts))
    )  # fmt: skip
    devices = sum(replicas)
    return Plan(
        model="toy", devices=devices, batch=48, micro_batch=12, schedule=schedule, replicas=replicas, stages=stages,
        step_s=0.05 / devices, bound_s=0.0, bubble_of_step=0.0, bubble_of_span=0.0, peak_bytes=(1.0,) * devices,
        peak_in_flight=(),
    )  # fmt: skip


def write_plans(directory: Path, *names: str) -> str:
    """Write those plans. Return the path of the file."""
    path = directory / f"plans-{'_'.join(names)}.json"
    path.write_text(json.dumps(PlanSet(tuple(plan(name) for name in names)).to_json()))
    return str(path)


def undisturbed(epochs: int) -> dict[int, StepHistory]:
    """Return the steps of the same script, run by plain Python on one device at full speed.

    The script runs once for all tests of this process: a shorter training is the beginning of a longer one.
    """
    steps = _run_alone(max(epochs, 20))
    return {step: record for step, record in steps.items() if step <= epochs * STEPS_PER_EPOCH}


@functools.cache
def _run_alone(epochs: int) -> dict[int, StepHistory]:
    with tempfile.TemporaryDirectory(prefix="offcut-alone-") as directory:
        plans = write_plans(Path(directory), "1")
        environment = {**os.environ, ENV_JOB_DIR: directory, ENV_RECORDS: "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(SCRIPT), "--epochs", str(epochs), "--plans", plans]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return history(Path(directory) / "records")
