"""A sweep under a real controller: nodes come and go, the controller dies, and no decision is another one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from live import wait_for
from offcut.model.search_space import ParameterValues
from offcut.search import begin, step
from offcut.search import events as search_events
from offcut.wire.sweepspec import parse_sweep

pytestmark = [pytest.mark.live, pytest.mark.ci, pytest.mark.xdist_group("live-2")]

SCRIPT = Path(__file__).parent / "trial.py"
SWEEP = {
    "name": "s",
    "job": {"command": [str(SCRIPT)], "workdir": str(SCRIPT.parent), "mode": "restart", "sizes": "1"},
    "space": {"lr": {"type": "float", "low": 0.0, "high": 1.0}},
    "scheduler": {"name": "asha", "max_budget": 9, "min_budget": 1},
    "max_trials": 9,
    "parallel": 2,
    "order": "logical",
}


def objective(parameters: ParameterValues, epoch: int) -> float:
    """Return what `trial.py` reports."""
    return abs(float(parameters["lr"]) - 0.3) + 1 / epoch


def expected_rungs() -> dict[int, list[list[float]]]:
    """Return the rungs of every trial of the same sweep where every result is known at once."""
    state, _ = begin(parse_sweep(SWEEP, where="test").to_sweep("s-1"))
    while state.phase == "running":
        for trial in [trial for trial in state.trials.values() if trial.phase == "running" and not trial.reports]:
            for epoch in range(1, 10):
                value = objective(trial.parameters or {}, epoch)
                step(state, search_events.TrialReported(trial.number, float(epoch), value))
    return {n: [[result.budget, result.value] for result in trial.results] for n, trial in state.trials.items()}


def test_reclaims_and_a_controller_that_dies_change_no_decision(up: Callable) -> None:
    running = up(2)
    sweep_id = running.client.post("/v1/sweeps", SWEEP)["id"]

    def shown() -> dict:
        found: dict = running.client.get(f"/v1/sweeps/{sweep_id}")
        return found

    wait_for("results", lambda: sum(len(trial["rungs"]) for trial in shown()["each"]) >= 3)
    running.client.post("/v1/nodes/want", {"nodes": ["n01"]})
    running.process.kill()
    running.process.wait()
    running.start()
    running.client.post("/v1/nodes/offer", {"nodes": ["n01"]})
    wait_for("the end of the sweep", lambda: shown()["state"] != "running")
    assert shown()["state"] == "finished", shown()
    assert {trial["trial"]: trial["rungs"] for trial in shown()["each"]} == expected_rungs()
    command = [sys.executable, "-m", "offcut", "best", "s", "--json", "--state", str(running.paths.root)]
    best = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert best["budget"] == 9
    assert best["value"] == pytest.approx(objective(best["parameters"], 9))


def test_a_trial_takes_over_weights_optimizer_and_place_in_the_data(up: Callable) -> None:
    """Trial 0 does not learn. It goes on as `s-1.0-1` where trial 1 is, which is held, reclaimed and goes on, too."""
    running = up(2)
    script = SCRIPT.with_name("copied_trial.py")
    sweep_id = running.client.post(
        "/v1/sweeps",
        {
            "name": "s",
            "job": {"command": [str(script)], "workdir": str(script.parent), "sizes": "1"},
            "space": {"lr": {"choices": [0.0, 0.02]}},
            "scheduler": {"name": "pbt", "max_budget": 2, "population": 2, "quantile": 0.5, "resample": 0},
            "suggest": "grid",
            "parallel": 2,
            "order": "logical",
            "seed": 1,  # the changed learning rate is 0 again
        },
    )["id"]
    jobs = running.paths.shared / "jobs"

    def shown() -> dict:
        found: dict = running.client.get(f"/v1/sweeps/{sweep_id}")
        return found

    wait_for("the copy", (jobs / f"{sweep_id}.0-1").exists)
    running.client.post("/v1/nodes/want", {"nodes": ["n01"]})
    running.client.post("/v1/nodes/offer", {"nodes": ["n01"]})
    (jobs / "go").touch()
    wait_for("the end of the sweep", lambda: shown()["state"] != "running")
    each = shown()["each"]
    assert [trial["state"] for trial in each] == ["completed", "completed"], shown()
    assert each[0]["copies"] == [{"budget": 1.0, "source": 1, "source_budget": 1.0}]
    assert each[0]["job"] == f"{sweep_id}.0-1"
    seen = {
        name: [json.loads(line) for line in (jobs / f"{sweep_id}.{name}" / "seen.jsonl").read_text().splitlines()]
        for name in ("0", "1", "0-1")
    }
    first = seen["0-1"][0]["state"]
    assert first in [line["state"] for line in seen["1"]], "bit for bit a state of the source, before the same batch"
    assert first not in [line["state"] for line in seen["0"]]
    assert first[0] == 1, "and not from the beginning"
    assert {line["lr"] for line in seen["0-1"]} == {each[0]["parameters"]["lr"]} == {0.0}, "not that of the source"
    assert any(any(any(row) for row in moment if isinstance(row, list)) for moment in first[3])
