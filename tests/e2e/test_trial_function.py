"""A sweep of many small trials: their script is loaded once on each node, and trials are forks of it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

import offcut.client

pytestmark = [pytest.mark.live, pytest.mark.ci, pytest.mark.xdist_group("live-2")]

SCRIPT = Path(__file__).parent / "trial_function.py"


def records(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_trials_are_forks_of_a_script_that_is_loaded_once(up: Callable) -> None:
    running = up(2)
    root = running.paths.root
    controller = offcut.client.connect(root)
    sweep = controller.submit_sweep(
        name="s",
        job={
            "command": [str(SCRIPT)],
            "sizes": "1:2",
            "max_failures": 0,
            "env": {"OFFCUT_TEST_DIRECTORY": str(root)},
        },
        space={"n": {"choices": list(range(12))}},
        suggest="grid",
        scheduler={"name": "asha", "min_budget": 1, "max_budget": 2, "reduction_factor": 2},
        max_trials=12,
    )
    reclaimed = False
    for _ in sweep.follow():
        if not reclaimed and len(records(root / "trials") if (root / "trials").exists() else ()) >= 5:
            controller.want(["n01"])
            controller.offer(["n01"])
            reclaimed = True
    assert sweep.state == "finished", sweep.status()
    assert reclaimed

    rows = {row["params_n"]: row for row in sweep.trials()}
    assert [n for n, row in rows.items() if row["state"] == "failed"] == [3], "a crash ends its own trial alone"
    assert {n: row["value"] for n, row in rows.items() if n != 3} == {n: n for n in range(12) if n != 3}
    assert (sweep.best() or {})["parameters"] == {"n": 0}

    loads, trials = records(root / "loads"), records(root / "trials")
    assert {load["parameters"] for load in loads} == {None}
    assert {trial["parent"] for trial in trials} <= {load["pid"] for load in loads}, "each trial is a fork"
    servers: defaultdict[str, set[int]] = defaultdict(set)
    for trial in trials:
        servers[trial["worker"].partition("#")[0]].add(trial["parent"])
    assert len(servers["n02"]) <= 1, "its agent has loaded the script once"
    assert len(servers["n01"]) <= 2, "so has each of the two agents that it had"
    assert all(len(trial["seen"]) == 1 for trial in trials), "no trial sees another one's memory"
    jobs = [trial["job"] for trial in trials]
    assert len(jobs) > len(set(jobs)), "members that join, and trials that go on after a halt, are forks, too"
