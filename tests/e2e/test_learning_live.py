"""Real jobs of unknown scaling: measured, tried at other sizes, remembered for their family and over a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-1"), pytest.mark.timeout(300)]

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "profiling_live_job.py"
UNEVEN = Path(__file__).with_name("uneven_train.py")
#: Two nodes are as good as more.
LIMITED = ("--rate", "240", "--knee", "2", "--width", "8")


def test_a_curve_is_learned_and_used_by_the_family_and_survives_a_crash(up: Callable, tmp_path: Path) -> None:
    running = up(4, "--profiler", "gp")
    first = running.submit(SCRIPT, *LIMITED, "--seconds", "600", name="first", sizes="1:4", step_records=False)

    def curve(job: str) -> dict:
        told: dict = running.client.get(f"/v1/jobs/{job}/curve")
        return told

    running.until(first, "two sizes measured", lambda _: len(curve(first)["own"]) >= 2)
    assert curve(first)["probes"] >= 1
    assert curve(first)["grow_cost_s"] > 0
    running.process.kill()
    running.process.wait()
    running.start()
    before = {point["size"] for point in curve(first)["own"]}
    assert len(before) >= 2, "what was measured is in the journal"

    figure = tmp_path / "first.png"
    command = [sys.executable, "-m", "offcut", "curve", "first", "--figure", str(figure), "--json"]
    environment = {**os.environ, "OFFCUT_STATE": str(running.paths.root)}
    shown = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)
    assert {point["size"] for point in shown["own"]} >= before
    assert figure.stat().st_size > 10_000

    second = running.submit(SCRIPT, *LIMITED, "--seconds", "600", name="second", sizes="1:4", step_records=False)
    running.until(second, "its own throughput", lambda _: curve(second)["own"])
    told = curve(second)
    assert told["relatives"] == 1
    assert told["probes"] == 0, "the second of a family tries nothing"
    assert any("it begins with the curves of" in line for line in running.story(second))
    for job in (first, second):
        running.client.post(f"/v1/jobs/{job}/cancel")


@pytest.mark.slow  # it measures speeds, which say nothing where other trainings share the cores
def test_a_slow_job_is_measured_again_and_a_slow_node_is_named(up: Callable, tmp_path: Path) -> None:
    running = up(3, "--profiler", "gp")
    slow = tmp_path / "slow"
    slow.write_text("")
    job = running.submit(UNEVEN, str(slow), name="uneven", sizes="3", step_records=False)

    def rate() -> float:
        (point,) = running.client.get(f"/v1/jobs/{job}/curve")["own"]
        measured: float = point["rate"]
        return measured

    def story_has(*words: str) -> Callable[[Any], bool]:
        return lambda _: any(all(word in line for word in words) for line in running.story(job))

    running.until(job, "its own throughput", lambda _: running.client.get(f"/v1/jobs/{job}/curve")["own"])
    # A change is told from what three blocks of 20 reports showed, five reports a second.
    running.until(job, "a level to compare with", lambda shown: shown["steps"] > 900)
    before = rate()
    slow.write_text("*")
    running.until(job, "the alarm", story_has("its speed has changed by -"))
    assert rate() < 0.6 * before
    # The job is as slow as it was, but now only one of its nodes is why.
    slow.write_text("n02")
    running.until(job, "the slow node's name", story_has("n02 is slow"))
    assert any("n02 is slow" in line for line in running.story("n02"))
    running.client.post(f"/v1/jobs/{job}/cancel")
