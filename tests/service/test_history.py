"""Jobs that have ended: in the state, in the history, after a restart, and forgotten."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from controlled import Controlled
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient, Response

from offcut.control import Settings
from offcut.errors import StoreError
from offcut.model import events as ev
from offcut.service import app, views

DAY_S = 86400.0


class History(Controlled):
    """A controller that keeps two ended jobs in its state, and forgets jobs after ten days."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, monkeypatch, Settings(profiler="oracle", recent_jobs=2, keep_jobs_s=10 * DAY_S))

    @property
    def api(self) -> FastAPI:
        return app.build(self.controller, self.journal, self.cluster, self.paths)  # type: ignore[arg-type]

    async def call(self, method: str, path: str, **given: Any) -> Response:
        async with AsyncClient(transport=ASGITransport(app=self.api), base_url="http://offcut") as client:
            return await client.request(method, path, **given)

    async def get(self, path: str) -> Any:
        answer = await self.call("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ended(self, *jobs: str, apart_s: float = 100.0) -> None:
        """Submit these jobs and cancel them, some time apart."""
        for job in jobs:
            self.submit(job)
            self.paths.job(job).mkdir(parents=True, exist_ok=True)
            self.send(ev.JobCancelled, job=job)
            self.send(ev.JobNoted, job=job, text="ended", time_s=self.now_s() + apart_s)

    async def listed(self, query: str = "") -> list[str]:
        return [job["id"] for job in (await self.get(f"/v1/status{query}"))["jobs"]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(scenario: Any) -> None:
        async def main() -> None:
            controlled = History(tmp_path, monkeypatch)
            await controlled.begin()
            try:
                await scenario(controlled)
            finally:
                await controlled.controller.close()

        asyncio.run(main())

    return run


def test_status_shows_all_jobs_that_have_ended_also_after_a_restart(run):
    async def scenario(it: History) -> None:
        it.ended("a", "b", "c", "d", "e")
        it.submit("f")
        for _ in range(2):
            assert list(it.state.jobs) == ["d", "e", "f"]
            assert await it.listed() == ["a", "b", "c", "d", "e", "f"]
            assert await it.listed("?ended=3") == ["c", "d", "e", "f"]
            assert (await it.get("/v1/status?ended=3"))["left_out"] == 2
            assert await it.listed("?ended=1") == ["e", "f"]
            assert (await it.get("/v1/status?ended=1"))["left_out"] == 4
            it.restart()

    run(scenario)


def test_a_job_of_the_history_is_shown_as_one_of_the_state(run):
    async def scenario(it: History) -> None:
        it.ended("a", "b", "c")
        old, new = await it.get("/v1/jobs/a"), await it.get("/v1/jobs/c")
        assert old.keys() == new.keys()
        assert (old["id"], old["state"], old["reason"]) == ("a", "cancelled", "cancelled by hand")
        why = await it.get("/v1/jobs/a/why")
        assert why["words"] == ["It has cancelled: cancelled by hand."]
        assert why.keys() == (await it.get("/v1/jobs/c/why")).keys()
        assert why["story"]
        assert (await it.get("/v1/jobs/a/directory"))["directory"] == str(it.paths.job("a"))
        assert "is not kept any more" in (await it.call("GET", "/v1/jobs/a/curve")).json()["error"]
        assert "has ended already" in (await it.call("POST", "/v1/jobs/a/cancel")).json()["error"]

    run(scenario)


def test_a_job_is_forgotten_for_good(run):
    async def scenario(it: History) -> None:
        it.ended("a", "b", "c")
        it.submit("d")
        answer = await it.call("POST", "/v1/forget", json={"jobs": ["a", "c"]})
        assert answer.json()["jobs"] == ["a", "c"]
        assert await it.listed() == ["b", "d"]
        assert it.journal.story("a") == []
        it.restart()
        assert await it.listed() == ["b", "d"]
        refused = await it.call("POST", "/v1/forget", json={"jobs": ["b", "d"]})
        assert refused.json()["error"] == "d is waiting: only jobs that have ended can be forgotten."
        assert await it.listed() == ["b", "d"], "none of them is forgotten"
        assert (await it.call("POST", "/v1/forget", json={"jobs": ["a"]})).json()["error"].startswith("There is no job")

    run(scenario)


def test_a_controller_that_dies_before_it_has_written_the_history_loses_nothing(run):
    async def scenario(it: History) -> None:
        it.controller.history.carry_out = lambda effects: None  # type: ignore[method-assign]
        it.ended("a", "b", "c")
        assert it.controller.history.count() == 0
        it.restart()
        assert [job.job.id for job in it.controller.history.newest()] == ["a"]

    run(scenario)


def test_a_history_that_cannot_be_written_ends_the_controller(run):
    async def scenario(it: History) -> None:
        it.ended("a", "b")
        it.submit("c")
        it.journal._db.execute("DROP TABLE history")
        with pytest.raises(StoreError, match="is damaged: no such table: history"):
            it.send(ev.JobCancelled, job="c")
        assert it.controller.unwritable.done()

    run(scenario)


def test_jobs_are_forgotten_after_their_time_with_what_offcut_wrote(run):
    async def scenario(it: History) -> None:
        it.ended("a", "b", "c")
        for job in ("a", "b"):
            for part in ("logs", "checkpoints/step-1", "records"):
                (it.paths.job(job) / part).mkdir(parents=True)
                (it.paths.job(job) / part / "file").write_text("x")
            (it.paths.job(job) / "generation").write_text("7")
        (it.paths.job("b") / "model.pt").write_text("the user's own")
        it.controller._retention.look()
        assert len(await it.listed()) == 3
        monkey_s = it.now_s() + 10 * DAY_S - 150.0  # a and b ended longer ago, c did not
        it.controller._retention._now = lambda: monkey_s  # type: ignore[method-assign]
        it.controller._retention.look()
        assert await it.listed() == ["c"]
        while it.paths.job("a").exists() or (it.paths.job("b") / "records").exists():
            await asyncio.sleep(0.01)
        assert [path.name for path in it.paths.job("b").iterdir()] == ["model.pt"]

    run(scenario)


def test_files_that_a_dead_controller_left_are_deleted_by_the_next_one(run):
    async def scenario(it: History) -> None:
        it.ended("a", "b", "c", "d")
        it.submit("e")
        for job in ("a", "b", "c", "e"):
            (it.paths.job(job) / "logs").mkdir(parents=True)
        it.controller._effects._tasks.once = lambda name, coroutine: coroutine.close()  # type: ignore[method-assign]
        it.send(ev.JobsForgotten, jobs=("a", "e"), files=True)
        it.send(ev.JobsForgotten, jobs=("b",), files=False)
        it.restart()
        await it.controller._retention.delete_left_files()
        left = [job for job in ("a", "b", "c", "e") if (it.paths.job(job) / "logs").exists()]
        assert left == ["b", "c", "e"]  # b's were to stay, c is in the history, e has not ended

    run(scenario)


def test_only_jobs_whose_time_is_over_are_read_from_the_history(run):
    async def scenario(it: History) -> None:
        it.ended("a", "b", "c", "d")
        asked: list[float] = []
        before = it.controller.history.ended_before
        it.controller.history.ended_before = lambda s: (asked.append(s), before(s))[1]  # type: ignore[func-returns-value,method-assign]
        it.controller._retention._now = lambda: 20 * DAY_S  # type: ignore[method-assign]
        it.controller._retention.look()
        assert asked == [10 * DAY_S]

    run(scenario)


def test_what_the_controller_keeps_of_a_job_goes_with_it(run):
    async def scenario(it: History) -> None:
        for job in ("a", "b", "c", "d"):
            it.submit(job)
            it.send(ev.JobProgressed, job=job, generation=0, step=1, samples=16, loss=1.0)
            it.controller.throughput._told.add((job, "it is silent"))
            it.send(ev.JobCancelled, job=job)
            it.send(ev.JobNoted, job=job, text="ended", time_s=it.now_s() + 100)
        controller = it.controller
        assert set(controller.metrics._samples) == {"c", "d"}
        assert {job for job, _ in controller.throughput._told} == {"c", "d"}

    run(scenario)


def test_both_views_have_the_same_keys(run):
    async def scenario(it: History) -> None:
        it.ended("a", "b", "c")
        assert list(views.ended_job(it.controller.history.newest()[0])) == list(
            views.job(it.controller, it.state.jobs["c"])
        )

    run(scenario)


def test_why_tells_what_keeps_the_batch_system_from_giving_nodes(run, monkeypatch):
    said = {
        "trouble": "squeue did not answer within 20 s.",
        "paused": "somebody has cancelled all pilots",
        "against": "the site's rules forbid claims (maintenance)",
        "share": 2,
        "shared": 8,
        "controllers": 4,
        "warnings": ["an Epilog runs after each pilot. Time it."],
    }

    async def scenario(it: History) -> None:
        it.submit("a")
        assert not any("site" in word for word in (await it.get("/v1/jobs/a/why"))["words"])
        monkeypatch.setattr(it.cluster, "describe", lambda: said)
        words = (await it.get("/v1/jobs/a/why"))["words"]
        assert words[1:6] == [
            "The batch system does not answer: squeue did not answer within 20 s.",
            "Claiming pauses: somebody has cancelled all pilots.",
            "No node is held: the site's rules forbid claims (maintenance).",
            "This controller may hold 2 of 8 nodes; 4 controllers share them as the site's rules say.",
            "Note: an Epilog runs after each pilot. Time it.",
        ]

    run(scenario)
