"""Faults in and around Slurm while offcut trains: training goes on, and nothing is left behind."""

from __future__ import annotations

import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from golden import SCRIPT

from live import wait_for
from offcut.cluster.slurm.testbed import SlurmTestbed
from slurmed import MARKS, Harvesting

pytestmark = [*MARKS, pytest.mark.ci, pytest.mark.timeout(400)]


def begin(private_slurm: Callable, harvest: Callable, **config: object) -> tuple[Harvesting, str]:
    """Start a training on all three nodes of a Slurm."""
    running = harvest(private_slurm(nodes=3, worker_template=True, **config))
    job = running.submit(SCRIPT, "--epochs", "100000", "--pace", "0.05", sizes="1:3", checkpoint_age_s=2.0)
    running.until(job, "all nodes", lambda shown: shown["size"] == 3)
    return running, job


def goes_on(running: Harvesting, job: str, steps: int = 30) -> None:
    before = running.job(job)["steps"]
    running.until(job, "progress", lambda shown: shown["steps"] > before + steps)


def until_jobs_are_saved(slurm: SlurmTestbed) -> None:
    """Wait until slurmctld has saved its jobs.

    One that crashes before forgets them, gives their numbers out again, and drains nodes for that.
    """
    now_s = time.time()
    slurm.run("scancel", str(slurm.submit("true", "--hold")))  # what changes jobs lets it save them all, soon
    saved = slurm.directory / "state" / "job_state"
    wait_for("Slurm to save its jobs", lambda: saved.is_file() and saved.stat().st_mtime > now_s)


def trouble(running: Harvesting) -> str:
    return str(running.client.get("/v1/status")["cluster"]["trouble"])


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "crashed"])
def test_slurmctld_is_away(private_slurm: Callable, harvest: Callable, crash: bool) -> None:
    running, job = begin(private_slurm, harvest, lines={"MessageTimeout": "2"})
    slurm = running.slurm
    until_jobs_are_saved(slurm)
    slurm.stop_controller(crash=crash)
    wait_for("the trouble to show", lambda: trouble(running))
    assert "Slurm does not answer" in running.cli("status").stdout
    goes_on(running, job)
    slurm.start_controller()
    wait_for("an answer", lambda: not trouble(running))
    running.until(job, "all nodes", lambda shown: shown["size"] == 3)
    goes_on(running, job)


def test_a_slurmd_dies_and_its_node_goes_down(private_slurm: Callable, harvest: Callable) -> None:
    running, job = begin(private_slurm, harvest, lines={"SlurmdTimeout": "5"})
    running.slurm.kill_node("n02")
    running.until(job, "the others alone", lambda shown: shown["size"] == 2 and "n02" not in shown["nodes"])
    goes_on(running, job)
    wait_for("no agent on the node that is down", lambda: len(running.agents_of_pilots()) == 2)
    running.slurm.start_node("n02")
    running.until(job, "all nodes again", lambda shown: shown["size"] == 3)


def test_a_node_is_drained_under_us(private_slurm: Callable, harvest: Callable) -> None:
    running, job = begin(private_slurm, harvest)
    running.slurm.run("scontrol", "update", "NodeName=n02", "State=DRAIN", "Reason=test")
    running.until(job, "the others alone", lambda shown: shown["size"] == 2 and "n02" not in shown["nodes"])
    goes_on(running, job)


def test_a_script_that_ignores_term_does_not_keep_the_queue_waiting(
    private_slurm: Callable, harvest: Callable, tmp_path: Path
) -> None:
    script = tmp_path / "stubborn.py"
    body = """
        import runpy, signal, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.argv = ["train.py", "--epochs", "100000", "--pace", "30"]
        runpy.run_path({train!r}, run_name="__main__")
    """
    script.write_text(textwrap.dedent(body).format(train=str(SCRIPT)))
    running = harvest(private_slurm(nodes=2, worker_template=True, lines={"KillWait": "120"}))
    running.submit(script, sizes="2")
    status = lambda: running.client.get("/v1/status")["nodes"]  # noqa: E731
    wait_for("both training", lambda: [node["worker"] for node in status()] == ["member", "member"])
    main = running.slurm.submit("exec sleep 300", "--partition=main", "--nodes=2")
    # Slurm itself would kill after two minutes only.
    wait_for("the main job to run", lambda: running.slurm.state(main) == "RUNNING", 60.0)
    running.slurm.run("scancel", str(main))


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[None]:
    path.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=False)
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here (it takes root)")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_spool_costs_one_node(private_slurm: Callable, harvest: Callable) -> None:
    slurm = private_slurm(nodes=3, worker_template=True)
    spool = slurm.directory / "spool" / "n02"
    slurm.kill_node("n02")
    with small_disk(spool, "64k"):
        slurm.start_node("n02")
        wait_for("the node", lambda: "idle" in slurm.run("sinfo", "-h", "--nodes=n02", "--format=%T"))
        with pytest.raises(OSError, match="No space"):
            (spool / "filler").write_bytes(b"x" * 2**17)
        running = harvest(slurm)
        job = running.submit(SCRIPT, "--epochs", "100000", "--pace", "0.05", sizes="1:3", checkpoint_age_s=2.0)
        running.until(job, "the others", lambda shown: shown["size"] == 2 and "n02" not in shown["nodes"])
        goes_on(running, job, steps=100)
        assert running.job(job)["size"] == 2
        slurm.kill_node("n02")
