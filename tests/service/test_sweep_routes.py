"""The owner's API submits, shows and changes sweeps; what trials report is read from their files."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from controlled import Controlled
from httpx import ASGITransport, AsyncClient, Response

from offcut.control import Settings
from offcut.model import events as ev
from offcut.model.sweep import SchedulerTraits
from offcut.service import app
from offcut.service.objective_files import ObjectiveFiles, parse_report
from offcut.service.searcher import storage
from offcut.service.searcher.user_schedulers import UserSchedulers
from offcut.wire.worker_env import OBJECTIVES_FILE

SWEEP: dict[str, Any] = {
    "name": "s",
    "job": {"command": ["train.py"], "sizes": "1"},
    "space": {"lr": {"type": "float", "low": 0.1, "high": 1}},
    "scheduler": {"name": "asha", "max_budget": 9},
    "max_trials": 9,
}


class WithSweep(Controlled):
    """A controller without nodes, to which sweeps are submitted."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch, Settings(profiler="oracle"))
        self.reader = ObjectiveFiles(
            self.controller.state, self.paths.job, self.controller.clock.now, self.controller.handle
        )

    async def call(self, method: str, path: str, body: Any = None) -> Response:
        api = app.build(self.controller, self.journal, self.cluster, self.paths)  # type: ignore[arg-type]
        async with AsyncClient(transport=ASGITransport(app=api), base_url="http://offcut") as client:
            return await client.request(method, path, json=body)

    async def get(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.call(method, path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def refused(self, method: str, path: str, body: Any = None) -> str:
        answer = await self.call(method, path, body)
        assert answer.status_code == 400, answer.text
        return str(answer.json())

    def report(self, job: str, text: str) -> None:
        """Append to the file of a trial that trains."""
        self.controller.state.jobs[job].phase = "running"
        self.controller.state.jobs[job].trained_since_s = 1.0
        self.paths.job(job).mkdir(parents=True, exist_ok=True)
        with (self.paths.job(job) / OBJECTIVES_FILE).open("a") as file:
            file.write(text)

    def trial(self, number: int) -> Any:
        return self.controller.state.sweeps["s-1"].search.trials[number]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(scenario: Any) -> None:
        async def main() -> None:
            controlled = WithSweep(tmp_path, monkeypatch)
            await controlled.begin()
            try:
                await scenario(controlled)
            finally:
                await controlled.controller.close()

        asyncio.run(main())

    return run


def test_a_sweep_is_submitted_shown_extended_and_ended(run: Any) -> None:
    async def scenario(it: WithSweep) -> None:
        shown = await it.get("POST", "/v1/sweeps", SWEEP)
        assert (shown["id"], shown["state"], shown["trials"], shown["best"]) == ("s-1", "running", {"running": 1}, None)
        (listed,) = await it.get("GET", "/v1/sweeps")
        assert listed == shown
        one = await it.get("GET", "/v1/sweeps/s")
        assert one["each"][0]["job"] == "s-1.0"
        assert one["story"][0]["text"] == "submitted: at most 9 trials, scheduler asha"
        assert (await it.get("GET", "/v1/jobs/s-1.0"))["state"] == "waiting"
        assert (await it.get("PATCH", "/v1/sweeps/s", {"max_trials": 20}))["max_trials"] == 20
        assert "has 20 already" in await it.refused("PATCH", "/v1/sweeps/s", {"max_trials": 20})
        # The commands for jobs reach a sweep too.
        assert (await it.get("POST", "/v1/jobs/s/pause"))["state"] == "paused"
        assert (await it.get("GET", "/v1/jobs/s-1.0"))["state"] == "paused"
        assert "s-1.0 is a trial of s-1" in await it.refused("POST", "/v1/jobs/s-1.0/resume")
        assert (await it.get("POST", "/v1/sweeps/s-1/resume"))["state"] == "running"
        assert "s-1 is running: only sweeps that have ended" in await it.refused("POST", "/v1/forget", {"jobs": ["s"]})
        assert "has no such limit" in await it.refused("PATCH", "/v1/sweeps/s", {"max_node_hours": 2})
        assert (await it.get("POST", "/v1/jobs/s-1/cancel"))["state"] == "cancelled"
        assert "has ended already (cancelled)" in await it.refused("POST", "/v1/sweeps/s/resume")
        assert "cannot be asked to fly" in await it.refused("POST", "/v1/sweeps/s/fly")
        assert "There is no sweep called t" in await it.refused("GET", "/v1/sweeps/t")

    run(scenario)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"scheduler": {"name": "asha"}}, "missing 1 required keyword-only argument: 'max_budget'"),
        ({"scheduler": {"name": "ahsa", "max_budget": 9}}, "unknown scheduler 'ahsa'."),
        ({"scheduler": {"name": "/none/mine.py:Mine"}}, "scheduler file /none/mine.py: not found."),
        ({"suggest": "grid"}, "lr: a grid needs choices or integers"),
        ({"job": {"command": ["t.py"], "env_file": "x"}}, "env_file: the file is read on the machine"),
    ],
)
def test_a_sweep_that_cannot_run_is_refused(run: Any, changes: dict[str, Any], told: str) -> None:
    async def scenario(it: WithSweep) -> None:
        assert told in await it.refused("POST", "/v1/sweeps", SWEEP | changes)
        assert it.controller.state.sweeps == {}

    run(scenario)


def test_reports_are_read_from_the_trials_files(run: Any) -> None:
    async def scenario(it: WithSweep) -> None:
        await it.get("POST", "/v1/sweeps", SWEEP)
        it.report("s-1.0", '{"budget": 0.5, "value": 3}\n{"budget": 0.75, "val')
        await it.reader.look()
        assert it.trial(0).last_report.value == 3.0
        it.report("s-1.0", 'ue": 2.5}\nno json\n{"budget": "x", "value": 1}\n{"budget": -1, "value": 1}\n')
        await it.reader.look()
        assert (it.trial(0).last_report.budget, it.trial(0).last_report.value) == (0.75, 2.5)
        events = it.controller.state.event_id
        # What is done again is reported again, which changes nothing.
        it.report("s-1.0", '{"budget": 0.5, "value": 3}\n')
        await it.reader.look()
        assert it.controller.state.event_id == events
        it.report("s-1.0", '{"budget": 1, "value": NaN}\n')
        await it.reader.look()
        assert it.trial(0).phase == "halted"
        assert math.isnan(it.trial(0).value)

    run(scenario)


def test_a_trial_that_has_ended_is_read_to_its_end(run: Any) -> None:
    async def scenario(it: WithSweep) -> None:
        await it.get("POST", "/v1/sweeps", SWEEP | {"max_trials": 1})
        lines = [json.dumps({"budget": budget, "value": 10 - budget}) + "\n" for budget in range(1, 8)]
        it.report("s-1.0", lines[0])
        it.controller.state.jobs["s-1.0"].phase = "waiting"
        it.send(ev.JobCancelled, job="s-1.0")
        with (it.paths.job("s-1.0") / OBJECTIVES_FILE).open("a") as file:
            file.writelines(lines[1:])
        await it.reader.look()
        assert it.trial(0).last_report.budget == 7
        assert it.controller.state.sweeps["s-1"].trial_jobs == {}

    run(scenario)


def test_a_report_behind_one_that_was_cut_short_counts() -> None:
    assert parse_report(b'{"budget": 3, "val{"budget": 3, "value": 0.5}') == ev.ObjectiveReport(3.0, 0.5)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"budget": 1}',
        b'{"budget": Infinity, "value": 1}',
        b"\xff",
        b'{"budget": 1e999, "value": 0}',
    ],
)
def test_what_is_not_a_report_is_passed_over(line: bytes) -> None:
    assert parse_report(line) is None


def test_sweeps_are_forgotten_with_their_files_by_hand_and_after_their_time(run: Any) -> None:
    async def scenario(it: WithSweep) -> None:
        for number in (1, 2, 3):
            sweep_id = (await it.get("POST", "/v1/sweeps", SWEEP))["id"]
            for part in (sweep_id, f"{sweep_id}.0"):
                (it.paths.job(part) / "logs").mkdir(parents=True, exist_ok=True)
            if number < 3:
                await it.get("POST", f"/v1/sweeps/{sweep_id}/cancel")
        first, second, third = it.controller.state.sweeps
        forgotten = await it.get("POST", "/v1/forget", {"jobs": [first], "files": True})
        assert forgotten["jobs"] == [first, f"{first}.0"]
        retention = it.controller._retention
        retention._now = lambda: it.now_s() + 31 * 86400.0  # type: ignore[method-assign]
        retention.look()
        assert list(it.controller.state.sweeps) == [third]
        while any(it.paths.job(part).exists() for part in (first, f"{first}.0", second, f"{second}.0")):
            await asyncio.sleep(0.01)
        assert it.paths.job(f"{third}.0").exists()
        # A controller that died before it had deleted the files leaves that to the next one.
        (it.paths.job(f"{second}.0") / "logs").mkdir(parents=True)
        await retention.delete_left_files()
        assert not it.paths.job(f"{second}.0").exists()

    run(scenario)


def test_a_users_scheduler_is_described_once_and_asked_in_its_process(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from offcut.search.schedulers.run_all import RunAll\nclass Scheduler(RunAll):\n    waits_at_rungs = True\n"
    )

    async def scenario(it: WithSweep) -> None:
        assert "the path must be absolute" in await it.refused(
            "POST", "/v1/sweeps", SWEEP | {"scheduler": {"name": "mine.py", "max_budget": 9}}
        )
        shown = await it.get("POST", "/v1/sweeps", SWEEP | {"scheduler": {"name": str(file), "max_budget": 9}})
        sweep = it.controller.state.sweeps[shown["id"]]
        assert sweep.search.sweep.scheduler_traits == SchedulerTraits(9.0, True)
        assert shown["trials"] == {}, "its scheduler has not answered yet"
        schedulers = UserSchedulers(it.controller.state, it.now_s, it.controller.handle)
        try:
            await schedulers.look()
        finally:
            schedulers.close()
        assert it.trial(0).phase == "running"
        file.unlink()
        it.restart()
        assert it.trial(0).phase == "running", "the journal has its answers"

    run(scenario)


def test_the_file_of_a_trial_that_is_halted_is_not_read_for_ever(run: Any) -> None:
    async def scenario(it: WithSweep) -> None:
        await it.get("POST", "/v1/sweeps", SWEEP)
        it.report("s-1.0", '{"budget": 1, "value": 3}\n')
        await it.reader.look()
        job = it.controller.state.jobs["s-1.0"]
        assert it.trial(0).phase == "halted"
        it.reader._now = lambda: job.size_since_s + 30.0  # type: ignore[method-assign]
        assert it.reader._may_report("s-1.0"), "its members may still be leaving"
        it.reader._now = lambda: job.size_since_s + 300.0  # type: ignore[method-assign]
        assert not it.reader._may_report("s-1.0")
        job.phase = "running"
        assert it.reader._may_report("s-1.0")

    run(scenario)


def test_a_storage_that_is_locked_damaged_or_has_the_study_is_told_when_the_sweep_is_submitted(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_LOCK_S", 0.05)

    async def scenario(it: WithSweep) -> None:
        sweep = SWEEP | {"suggest": "optuna"}
        with sqlite3.connect(it.paths.studies) as db:
            db.execute("CREATE TABLE studies (study_name TEXT)")
            db.execute("INSERT INTO studies VALUES ('s-1')")
        refused = await it.refused("POST", "/v1/sweeps", sweep)
        assert "optuna.sqlite has a study called s-1 already, of another sweep" in refused
        db.execute("BEGIN IMMEDIATE")
        assert "database is locked" in await it.refused("POST", "/v1/sweeps", sweep | {"name": "t"})
        db.close()
        it.paths.studies.write_bytes(b"no database, but long enough to be read as one" * 10)
        assert "file is not a database" in await it.refused("POST", "/v1/sweeps", sweep)
        it.paths.studies.unlink()
        assert it.controller.state.sweeps == {}
        assert list(it.paths.job("x").parent.iterdir()) == []
        assert (await it.get("POST", "/v1/sweeps", sweep))["id"] == "s-1"

    run(scenario)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_storage_that_is_read_only_is_told_when_the_sweep_is_submitted(run: Any) -> None:
    async def scenario(it: WithSweep) -> None:
        sqlite3.connect(it.paths.studies).execute("CREATE TABLE studies (study_name TEXT)")
        it.paths.studies.chmod(0o400)
        assert "readonly" in await it.refused("POST", "/v1/sweeps", SWEEP | {"suggest": "optuna"})

    run(scenario)
