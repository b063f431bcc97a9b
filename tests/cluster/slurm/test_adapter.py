"""The adapter against a real Slurm: both modes, the site's limits, and what it does when Slurm refuses or is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from offcut.errors import InputError
from slurmed import MARKS
from watched_slurm import connected, run

pytestmark = MARKS


@pytest.mark.parametrize("reading", ["text", "json"])
def test_the_window_before_a_reservation_is_the_pilots_limit(
    private_slurm: Callable, state_dir: Path, reading: str
) -> None:
    slurm = private_slurm(nodes=2)
    reserve = ("Nodes=n01", "StartTime=now+600", "Duration=30", "Users=root")
    slurm.run("scontrol", "create", "reservation", "ReservationName=maint", *reserve)

    async def scenario() -> None:
        async with connected(slurm, state_dir, mode="backfill", reading=reading, longest_s=1200) as watched:
            await watched.until("both offered", lambda: len(watched.offers) == 2)
            until_s = watched.offers["n01"]
            assert until_s is not None
            assert 500 < until_s - time.time() <= 600
            assert watched.offers["n02"] is None, "an end that is not known stays unknown"
            await watched.claim("n01", "n02")
            assert sorted(watched.pilots("%N=%l")) == ["n01=9:00", "n02=20:00"]

    run(scenario)


@pytest.mark.parametrize("reading", ["text", "json"])
def test_backfill_leaves_nodes_for_a_job_array_with_any_names_of_jobs(
    private_slurm: Callable, state_dir: Path, reading: str
) -> None:
    slurm = private_slurm(nodes=2, preempt_mode="OFF")

    async def scenario() -> None:
        async with connected(slurm, state_dir, mode="backfill", reading=reading) as watched:
            await watched.claim("n01", "n02")
            slurm.submit("true", "--partition=main", "--begin=now+1hour", "--job-name=a\nb|c\n1|PENDING|main")
            array = slurm.submit("exec sleep 0.1", "--partition=main", "--nodes=1", "--array=1-6")

            def started() -> int:
                shown = slurm.run("squeue", "--noheader", "--array", "--states=all", f"--jobs={array}", "--format=%T")
                return sum(state in ("RUNNING", "COMPLETING", "COMPLETED") for state in shown.split())

            await watched.until("all tasks", lambda: started() == 6)
            assert watched.cluster.describe()["trouble"] == ""

    run(scenario)


def test_backfill_leaves_nodes_without_preemption(private_slurm: Callable, state_dir: Path) -> None:
    slurm = private_slurm(nodes=2, preempt_mode="OFF")

    async def scenario() -> None:
        async with connected(slurm, state_dir, mode="backfill") as watched:
            await watched.claim("n01", "n02")
            main = slurm.submit("exec sleep 60", "--partition=main", "--nodes=1")
            await watched.until("the main job", lambda: slurm.state(main) == "RUNNING")
            await watched.until("the loss", lambda: len(watched.lost) == 1)
            assert watched.wanted == watched.lost
            assert len(watched.pilots("%i")) == 1, "it leaves one node, not both"

    run(scenario)


def test_a_grace_is_not_used_up(private_slurm: Callable, state_dir: Path) -> None:
    slurm = private_slurm(nodes=1, grace_s=600)

    async def scenario() -> None:
        async with connected(slurm, state_dir) as watched:
            await watched.claim("n01")
            main = slurm.submit("exec sleep 60", "--partition=main", "--nodes=1")
            await watched.until("the main job, long before the grace is over", lambda: slurm.state(main) == "RUNNING")

    run(scenario)


def test_a_drained_node_is_left_and_caps_are_kept(private_slurm: Callable, state_dir: Path) -> None:
    slurm = private_slurm(nodes=3)

    async def scenario() -> None:
        async with connected(slurm, state_dir, max_nodes=2) as watched:
            await watched.until("two offers", lambda: len(watched.offers) == 2)
            first, second = sorted(watched.offers)
            await watched.claim(first, second)
            slurm.run("scontrol", "update", f"NodeName={first}", "State=DRAIN", "Reason=test")
            await watched.until("the loss", lambda: watched.lost == [first])
            assert watched.wanted == [first]
            await watched.until("another node", lambda: len(watched.offers) == 1)
            assert first not in watched.offers

    run(scenario)


def test_a_pilot_that_stays_pending_is_withdrawn_and_its_node_is_not_claimed(
    private_slurm: Callable, state_dir: Path
) -> None:
    slurm = private_slurm(nodes=1)

    async def scenario() -> None:
        async with connected(slurm, state_dir, interval_s=2.0, pending_limit_s=1.0, bench_s=600.0) as watched:
            await watched.until("the offer", lambda: "n01" in watched.offers)
            slurm.run("scontrol", "update", "PartitionName=idle", "State=DOWN")
            await watched.cluster.claim(["n01"], None)
            await watched.until("the refusal", lambda: "n01" in watched.refused)
            assert "stayed pending: PartitionDown" in watched.refused["n01"]
            slurm.run("scontrol", "update", "PartitionName=idle", "State=UP")
            looks = (await watched.cluster.statistics())["looks"]
            watched.offers.clear()
            for _ in range(2):
                looks += 1
                await watched.until("a look", lambda looks=looks: watched.cluster._figures["looks"] > looks)
            assert watched.offers == {}

    run(scenario)


def test_repeated_refusals_bring_on_a_pause_with_its_reason(private_slurm: Callable, state_dir: Path) -> None:
    slurm = private_slurm(nodes=3, lines={"EnforcePartLimits": "ALL"})

    async def scenario() -> None:
        async with connected(slurm, state_dir, interval_s=30.0) as watched:
            await watched.until("three offers", lambda: len(watched.offers) == 3)
            slurm.run("scontrol", "update", "PartitionName=idle", "AllowAccounts=others")
            await watched.cluster.claim(["n01", "n02", "n03"], None)
            await watched.until("the refusals", lambda: len(watched.refused) == 3)
            assert "account" in watched.refused["n01"]
            paused = watched.cluster.describe()["paused"]
            assert paused.startswith("sbatch failed:")

    run(scenario)


def test_slurmctld_may_be_away_for_a_while(private_slurm: Callable, state_dir: Path) -> None:
    slurm = private_slurm(nodes=2, lines={"MessageTimeout": "2"})

    async def scenario() -> None:
        async with connected(slurm, state_dir) as watched:
            await watched.claim("n01")
            await watched.until("the other's offer", lambda: "n02" in watched.offers)
            slurm.stop_controller()
            await watched.until("the trouble", lambda: watched.cluster.describe()["trouble"])
            await watched.cluster.claim(["n02"], None)
            await watched.until("the refusal", lambda: "n02" in watched.refused)
            assert watched.lost == [], "the pilot runs on"
            slurm.start_controller()
            await watched.until("no trouble", lambda: not watched.cluster.describe()["trouble"])
            assert watched.cluster.describe()["held"] == 1
            assert watched.lost == []
            await watched.until("the offer again", lambda: "n02" in watched.offers)

    run(scenario)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"partition": "nowhere"}, "Slurm has no partition 'nowhere'"),
        ({"account": "good"}, "Slurm refuses our pilots in 'idle'"),
        ({"gres": "gpu:4"}, "Slurm refuses our pilots in 'idle'"),
    ],
)
def test_refusals_of_slurm_are_reported_at_the_start(
    private_slurm: Callable, state_dir: Path, fields: dict[str, str], says: str
) -> None:
    options = "AllowAccounts=others" if "account" in fields else ""
    slurm = private_slurm(nodes=1, idle_options=options, lines={"EnforcePartLimits": "ALL"})

    async def scenario() -> None:
        with pytest.raises(InputError, match=says) as refused:
            async with connected(slurm, state_dir, **fields):
                pass
        assert "\n" not in str(refused.value)

    run(scenario)
    assert slurm.run("squeue", "--noheader") == ""


def test_a_controller_starts_while_all_nodes_are_drained(private_slurm: Callable, state_dir: Path) -> None:
    slurm = private_slurm(nodes=1)
    slurm.run("scontrol", "update", "NodeName=n01", "State=DRAIN", "Reason=maintenance")

    async def scenario() -> None:
        async with connected(slurm, state_dir) as watched:
            slurm.run("scontrol", "update", "NodeName=n01", "State=RESUME")
            await watched.claim("n01")
            (comment,) = slurm.run("squeue", "--noheader", "--partition=idle", "--format=%k").splitlines()
            assert comment.startswith("offcut pilot of the controller on ")
            assert comment.endswith(f", {state_dir}")

    run(scenario)


def test_a_pilot_that_an_administrator_cancels_is_not_submitted_again(private_slurm: Callable, state_dir: Path) -> None:
    slurm = private_slurm(nodes=2)

    async def scenario() -> None:
        async with connected(slurm, state_dir, bench_s=600.0) as watched:
            for node, by_administrator in (("n01", True), ("n02", False)):
                await watched.claim(node)
                if by_administrator:
                    slurm.run("scancel", *watched.pilots("%i"))
                    await asyncio.sleep(0.2)
                # As the controller does when the agent is gone.
                await watched.cluster.release([node])
                await watched.until("the end", lambda node=node: node in watched.lost)
            await watched.until("an offer", lambda: "n02" in watched.offers)
            await asyncio.sleep(2.0)
            assert set(watched.offers) == {"n02"}
            (left_alone,) = watched.cluster.describe()["set_aside"]
            assert (left_alone["node"], left_alone["reason"]) == ("n01", "somebody has cancelled its pilot")
            await watched.cluster.forgive(["n01"])
            await watched.until("its offer", lambda: "n01" in watched.offers)

    run(scenario)
