"""Training on the idle nodes of a real Slurm: nodes come and go, no step is lost, and no process is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from golden import SCRIPT, STEPS_PER_EPOCH, Pace, assert_same_training, undisturbed

from live import wait_for
from offcut.wire.step_records import history
from slurmed import MARKS, Harvesting

pytestmark = MARKS


def train(running: Harvesting, *options: str, epochs: int, sizes: str = "1:3") -> str:
    return running.submit(SCRIPT, "--epochs", str(epochs), *options, sizes=sizes, checkpoint_age_s=2.0)


def samples(running: Harvesting) -> dict[str, float]:
    """Return the controller's metrics by name, and those of a command of Slurm by the command."""
    every = [sample for metric in running.client.get("/v1/metrics") for sample in metric["samples"]]
    return {sample["labels"].get("command", sample["name"]): sample["value"] for sample in every}


def releases(metrics: dict[str, float]) -> float:
    """Return how many nodes were released; one whose agent was killed before it could report may count as lost."""
    return metrics["offcut_release_seconds_count"] + metrics["offcut_nodes_lost_total"]


@pytest.mark.timeout(300)
def test_trains_gives_way_to_the_queue_and_finishes_as_if_undisturbed(
    private_slurm: Callable, harvest: Callable, tmp_path: Path
) -> None:
    slurm = private_slurm(nodes=3, worker_template=True)
    running = harvest(slurm)
    epochs = 20
    pace = Pace(tmp_path, epochs * STEPS_PER_EPOCH)
    job = train(running, *pace.options, epochs=epochs)
    running.until(job, "all nodes", pace.awaiting(lambda shown: shown["size"] == 3))
    main = slurm.submit("exec sleep 600", "--partition=main", "--nodes=2")
    running.until(job, "the main job to run", pace.awaiting(lambda _: slurm.state(main) == "RUNNING"))
    running.until(job, "one node", pace.awaiting(lambda shown: shown["size"] == 1))
    counted = pace.awaiting(lambda _: releases(samples(running)) >= 2)
    running.until(job, "both releases to be counted", counted)
    assert {"sinfo", "squeue", "scontrol", "sbatch"} <= samples(running).keys()
    slurm.run("scancel", str(main))
    running.until(job, "all nodes again", pace.awaiting(lambda shown: shown["size"] == 3))
    pace.to_the_end()
    shown = running.until(job, "the end", lambda shown: shown["state"] == "finished")
    assert shown["steps"] == epochs * STEPS_PER_EPOCH
    assert_same_training(history(running.paths.job(job) / "records"), undisturbed(epochs))


@pytest.mark.timeout(300)
def test_a_killed_controller_adopts_its_pilots(private_slurm: Callable, harvest: Callable) -> None:
    slurm = private_slurm(nodes=2, worker_template=True)
    running = harvest(slurm)
    job = train(running, "--pace", "0.05", epochs=2000, sizes="2")
    before = running.until(job, "training", lambda shown: shown["steps"] > 20)
    pilots = running.pilots()
    records = running.paths.job(job) / "records"
    running.process.kill()
    running.process.wait()
    step_then = max(history(records))
    wait_for("training without a controller", lambda: max(history(records)) > step_then + 30)
    running.start()
    after = running.until(job, "progress", lambda shown: shown["steps"] > step_then + 30)
    assert after["epoch"] == before["epoch"], "the membership was not changed"
    assert running.pilots() == pilots, "the same pilots"
    assert "pilots_adopted" in running.log_text()
    # The kill switch: every pilot is gone in seconds, and none comes back.
    done = running.cli("release", "--all")
    assert done.returncode == 0, done.stderr
    running.nothing_left()
    assert running.client.get("/v1/status")["claiming"] is False
    running.client.post(f"/v1/jobs/{job}/cancel")
