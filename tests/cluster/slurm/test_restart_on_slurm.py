"""A plain script for torchrun on what a real Slurm leaves idle: launched again when the main queue takes a node."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from live import wait_for
from slurmed import MARKS

pytestmark = [*MARKS, pytest.mark.ci]

SCRIPT = Path(__file__).parents[2] / "e2e" / "ddp_train.py"
STEPS = 600


def launches(directory: Path) -> list[tuple[int, int]]:
    """Return every launch of the script so far: its first step, and its number of ranks, as its rank 0 recorded it."""
    begun = [path.read_text().partition("\n") for path in sorted(directory.glob("trail/*-0.jsonl"))]
    entries = [json.loads(line) for line, ended, _ in begun if ended]
    return [(entry["launched_at"], entry["world"]) for entry in entries] or [(0, 0)]


@pytest.mark.timeout(600)
def test_it_gives_way_to_the_main_queue_and_goes_on_with_what_is_left(
    private_slurm: Callable, harvest: Callable
) -> None:
    slurm = private_slurm(nodes=2, worker_template=True)
    running = harvest(slurm)
    job = running.submit(
        *(SCRIPT, "--steps", str(STEPS), "--pace", "0.02"),
        mode="restart",
        step_records=False,
        grow_cost_s=0.0,
        shrink_cost_s=0.0,
        sizes="1:2",
    )
    directory = running.paths.job(job)
    running.until(job, "steps on both nodes", lambda _: (directory / "checkpoint.pt").exists(), 200.0)
    main = slurm.submit("exec sleep 600", "--partition=main", "--nodes=1")
    wait_for("the main job to run", lambda: slurm.state(main) == "RUNNING")
    running.until(job, "a launch on one node", lambda _: launches(directory)[-1][1] == 1, 200.0)
    slurm.run("scancel", str(main))
    running.until(job, "a launch on both", lambda _: launches(directory)[-1][1] == 2, 200.0)
    shown = running.until(job, "the end", lambda shown: shown["state"] == "finished", 300.0)
    assert shown["failures"] == 0
    assert launches(directory)[-1][0] > 0, "it resumed"
