"""Steps, samples and steps that were done again are counted correctly over restarts of the controller."""

from __future__ import annotations

import asyncio
from typing import Any

from controlled import Controlled

from offcut.model import events as ev
from offcut.model.events import Timer
from offcut.report.run_report import write_report
from offcut.service import views
from offcut.wire import messages


def shown(it: Controlled) -> tuple[int, int, int]:
    job = views.job(it.controller, it.state.jobs["a"])
    return job["steps"], job["samples"], job["steps_redone"]


def say(it: Controlled, kind: type, node: str = "n1", **fields: Any) -> None:
    if "incarnation" in kind.model_fields:
        fields["incarnation"] = it.state.nodes[node].incarnation
    it.controller.agent_said(node, kind(job="a", **fields))


def training(tmp_path, monkeypatch) -> Controlled:
    it = Controlled(tmp_path, monkeypatch)
    it.submit("a")
    it.train("a", "n1")
    dial(it)
    return it


def dial(it: Controlled) -> None:
    node = it.state.nodes["n1"]
    generation = it.state.jobs["a"].generation
    it.dial("n1", messages.WorkerReport(job="a", incarnation=node.incarnation, ready=True, generation=generation))


def total_loss(it: Controlled, back_to: int, **last: int) -> None:
    """Let the only member die, and its successor begin at the checkpoint of step `back_to`."""
    say(it, messages.Exited, outcome="lost", **last)
    say(it, messages.Ready)
    say(it, messages.Formed, generation=it.state.jobs["a"].generation, step=back_to + 1)


def test_a_job_that_ended_while_nobody_had_heard_of_its_progress(tmp_path, monkeypatch):
    async def scenario():
        it = training(tmp_path, monkeypatch)
        say(it, messages.Trained, generation=1, step=1750, samples=56000)
        say(it, messages.Exited, outcome="finished", generation=1, stable_step=1750, samples=56000)
        it.restart()
        assert it.state.jobs["a"].phase == "finished"
        assert shown(it) == (1750, 56000, 0)

    asyncio.run(scenario())


def test_a_worker_that_left_tells_how_far_it_was(tmp_path, monkeypatch):
    async def scenario():
        it = training(tmp_path, monkeypatch)
        say(it, messages.Exited, outcome="left", generation=1, stable_step=40, samples=400)
        it.restart()
        assert shown(it) == (40, 400, 0)

    asyncio.run(scenario())


def test_steps_that_are_done_again_are_counted_once_each_time(tmp_path, monkeypatch):
    async def scenario():
        it = training(tmp_path, monkeypatch)
        say(it, messages.Progress, generation=1, step=100, samples=1000, loss=0.5)
        total_loss(it, 60)
        assert shown(it)[::2] == (60, 40), "it shows where the training is"
        say(it, messages.Progress, generation=it.state.jobs["a"].generation, step=70, samples=700)
        assert shown(it) == (70, 700, 40)
        total_loss(it, 65)
        assert shown(it)[::2] == (65, 45), "steps 71 to 100 have not been done again by now"
        it.restart()
        assert shown(it)[2] == 45

    asyncio.run(scenario())


def test_steps_done_again_are_a_lower_bound_where_they_are_told(tmp_path, monkeypatch):
    """The worker died without a word: it may have done more steps than it had reported."""

    async def scenario():
        it = training(tmp_path, monkeypatch)
        say(it, messages.Progress, generation=1, step=100, samples=1000, loss=0.5)
        total_loss(it, 60, generation=1, stable_step=102, samples=1020)
        assert shown(it)[2] == 42
        (text,) = (text for _, text in it.journal.story("a") if "done again" in text)
        assert text.endswith("; at least 42 steps are done again, because no member that had done them was left")
        assert "a: at least 42 steps were done again" in write_report(it.paths).read_text()

    asyncio.run(scenario())


def test_new_steps_of_a_survivor_are_not_counted_as_done_again(tmp_path, monkeypatch):
    async def scenario():
        it = training(tmp_path, monkeypatch)
        say(it, messages.Progress, generation=1, step=100, samples=1000)
        it.send(ev.GenerationBroken, job="a", generation=1, member=it.state.nodes["n1"].member)
        it.controller.handle(ev.TimerFired(time_s=it.now_s() + 10, timer=Timer("renew", "a")))
        say(it, messages.Formed, generation=it.state.jobs["a"].generation, step=101)
        assert shown(it)[::2] == (100, 0)
        say(it, messages.Progress, generation=1, step=99, samples=990)
        assert shown(it)[0] == 100, "a late report of an older generation"

    asyncio.run(scenario())


def test_the_controller_dies_before_the_worker_does(tmp_path, monkeypatch):
    """The next one knows from the worker's end, or from what was noted, how far the job had been."""

    async def scenario():
        it = training(tmp_path, monkeypatch)
        say(it, messages.Progress, generation=1, step=80, samples=800)
        it.controller._telemetry.note(5.0, it.state)
        say(it, messages.Progress, generation=1, step=90, samples=900)
        it.restart()
        await it.begin()
        assert shown(it) == (80, 800, 0)
        dial(it)
        total_loss(it, 60, generation=1, stable_step=100, samples=1000)
        assert shown(it)[::2] == (60, 40)
        it.restart()
        assert shown(it)[2] == 40
        it.paths.telemetry.write_text("no JSON }\n")
        it.restart()
        await it.begin()
        assert shown(it)[2] == 40

    asyncio.run(scenario())


def test_the_time_left_follows_from_the_rate_at_the_present_size(tmp_path, monkeypatch):
    async def scenario():
        it = training(tmp_path, monkeypatch)
        far = {"generation": 1, "total_steps": 100, "total_samples": 10_000}
        say(it, messages.Formed, generation=1, step=1)
        assert views.job(it.controller, it.state.jobs["a"])["time_left_s"] is None
        say(it, messages.Progress, step=20, samples=2_000, **far)
        job = views.job(it.controller, it.state.jobs["a"])
        assert (job["total_steps"], job["time_left_s"]) == (100, None), "no throughput is known yet"
        it.state.histories.observe("a", size=1, rate=50.0, spread=0.0, stretches=5, generation=1, settled=True)
        assert abs(views.job(it.controller, it.state.jobs["a"])["time_left_s"] - 160.0) < 1e-6
        say(it, messages.Progress, step=100, samples=10_000, **far)
        assert views.job(it.controller, it.state.jobs["a"])["time_left_s"] == 0.0

    asyncio.run(scenario())
