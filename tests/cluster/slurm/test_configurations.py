"""The adapter on Slurms of other configurations: shared nodes, preemption by QOS, GPUs, reservations, power saving."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from offcut.cluster.slurm.site_rules import ENV_SITE_FILE
from offcut.cluster.slurm.testbed import SlurmTestbed
from slurm_accounting import accounting, require_accounting
from slurmed import MARKS
from watched_slurm import connected, run

pytestmark = [*MARKS, pytest.mark.ci]


def test_jobs_that_share_nodes_take_as_few_as_they_need(private_slurm: Callable, state_dir: Path) -> None:
    slurm = private_slurm(nodes=2, cpus=4, shared=True)

    async def scenario() -> None:
        async with connected(slurm, state_dir) as watched:
            await watched.claim("n01", "n02")
            jobs = [slurm.submit("exec sleep 600", "--partition=main", "--ntasks=1", "--mem=100")]
            await watched.until("the first job", lambda: slurm.state(jobs[0]) == "RUNNING")
            await watched.until("the loss", lambda: len(watched.lost) == 1)
            jobs += [slurm.submit("exec sleep 600", "--partition=main", "--ntasks=1", "--mem=100") for _ in range(3)]
            await watched.until("four jobs", lambda: {slurm.state(job) for job in jobs} == {"RUNNING"})
            assert len(watched.lost) == 1, "the others share its node"
            (shared,) = watched.lost
            slurm.run("scancel", *map(str, jobs[1:]))
            looks = (await watched.cluster.statistics())["looks"]
            await watched.until("two looks", lambda: watched.cluster._figures["looks"] > looks + 1)
            assert watched.offers == {}, "a job still uses a part of the node"
            slurm.run("scancel", str(jobs[0]))
            await watched.until("the offer", lambda: set(watched.offers) == {shared})

    run(scenario)


def test_where_the_qos_decides_pilots_leave_for_jobs_whose_qos_does_not_preempt_them(
    private_slurm: Callable, state_dir: Path
) -> None:
    require_accounting()
    database = state_dir / "db"
    database.mkdir()
    with accounting(database) as lines:
        slurm = private_slurm(nodes=2, lines={**lines, "PreemptType": "preempt/qos", "PreemptMode": "CANCEL"})
        for asked in (
            "add account physics",
            "add user root account=physics",
            "add qos low",
            "add qos high",
            "modify qos low set PreemptMode=cancel",
            "modify qos high set Preempt=low",
            "modify user root set QOS=normal,low,high DefaultAccount=physics",
        ):
            slurm.run("sacctmgr", "--immediate", *asked.split())

        async def scenario() -> None:
            async with connected(slurm, state_dir, qos="low", mode="preemptible") as watched:
                await watched.claim("n01", "n02")
                options = ("--partition=main", "--nodes=1", "--exclusive")
                preempts = slurm.submit("exec sleep 60", "--qos=high", *options)
                await watched.until("the job that preempts", lambda: slurm.state(preempts) == "RUNNING")
                # Preemption alone would let it wait for the end of a pilot, although its partition's tier is higher.
                waits = slurm.submit("exec sleep 60", "--qos=normal", *options)
                await watched.until("the other job", lambda: slurm.state(waits) == "RUNNING")

        run(scenario)


def test_nodes_with_too_few_gpus_are_not_offered(private_slurm: Callable, state_dir: Path) -> None:
    slurm = private_slurm(nodes=3, gpus={"n01": 2, "n02": 1})

    async def scenario() -> None:
        async with connected(slurm, state_dir, gres="gpu:2") as watched:
            await watched.claim("n01")
            described = watched.cluster.describe()
            assert described["not_claimed"] == {
                "it has not 'gpu:2', but gpu:1": 1,
                "it has not 'gpu:2', but no generic resource": 1,
            }
            assert any("nodes differ in their accelerators" in warning for warning in described["warnings"])
            assert watched.offers == watched.refused == {}

    run(scenario)


def test_a_job_that_is_planned_elsewhere_starts_at_once_on_a_node_of_a_pilot(
    private_slurm: Callable, state_dir: Path
) -> None:
    slurm = private_slurm(nodes=2)
    slurm.directory.chmod(0o755)  # the other user's job reads its script there

    async def scenario() -> None:
        options = ("--partition=idle", "--nodes=1", "--exclusive")
        other = slurm.submit("exec sleep 600", *options, "--nodelist=n02", "--time=7")
        async with connected(slurm, state_dir) as watched:
            await watched.claim("n01")
            # The same partition does not preempt pilots, and the other job ends before the pilot: Slurm plans it there.
            job = slurm.submit("exec sleep 60", *options, "--uid=games")
            await watched.until("the job", lambda: slurm.state(job) == "RUNNING")
            slurm.run("scancel", str(job), str(other))
            await watched.until("their end", lambda: {slurm.state(job), slurm.state(other)} == {"CANCELLED"})

    run(scenario)


def test_a_pilot_leaves_before_a_reservation_begins(private_slurm: Callable, state_dir: Path) -> None:
    slurm = private_slurm(nodes=2)

    async def scenario() -> None:
        async with connected(slurm, state_dir, margin_s=10.0) as watched:
            await watched.claim("n01", "n02")
            begins_s = time.time() + 25
            reserve = ("ReservationName=maint", "Nodes=n01", "StartTime=now+25", "Duration=5", "Users=root")
            slurm.run("scontrol", "create", "reservation", *reserve, "Flags=IGNORE_JOBS")
            await watched.until("the loss", lambda: watched.lost == ["n01"])
            assert time.time() < begins_s
            assert "n01" not in watched.offers

    run(scenario)


def powered_down(slurm: SlurmTestbed) -> set[str]:
    shown = slurm.run("sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T").split("\n")
    return {line.split()[0] for line in shown if line.endswith("~")}


def test_nodes_that_the_queue_does_not_use_are_left_to_power_saving_and_not_woken(
    private_slurm: Callable, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = state_dir / "woken"
    program = state_dir / "wake.sh"
    program.write_text(f"#!/bin/sh\necho $1 >> {woken}\n")
    program.chmod(0o755)
    rules = state_dir / "rules.toml"
    rules.write_text("leave_idle_after_s = 15\n")
    rules.chmod(0o644)
    monkeypatch.setenv(ENV_SITE_FILE, str(rules))
    saving = {"SuspendTime": "20", "SuspendTimeout": "2", "ResumeTimeout": "20"}
    slurm = private_slurm(nodes=2, lines={**saving, "SuspendProgram": "/bin/true", "ResumeProgram": str(program)})

    async def scenario() -> None:
        async with connected(slurm, state_dir) as watched:
            await watched.claim("n01")
            await watched.until("the loss", lambda: watched.lost == ["n01"])
            await watched.until("both powered down", lambda: powered_down(slurm) == {"n01", "n02"})
            looks = watched.cluster._figures["looks"]
            await watched.until("two looks", lambda: watched.cluster._figures["looks"] > looks + 1)
            assert watched.offers == {}
            assert watched.cluster.describe()["not_claimed"] == {"its state is idle+POWERED_DOWN": 2}

    run(scenario)
    assert not woken.exists()
