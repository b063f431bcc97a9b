"""What a large job's agents are told of its generations: the newest of those that were set lately, and what changed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from controlled import Controlled

from offcut.model import Job, Sizes, effects
from offcut.model import events as ev
from offcut.model.events import Member
from offcut.service import generation_sender
from offcut.service.agents import AgentConnection
from offcut.service.generation_sender import pause_s, superseding
from offcut.wire import messages
from offcut.wire.generation_changes import GenerationReader

NODES = tuple(f"n{i:03d}" for i in range(100))


async def training(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Controlled, dict[str, AgentConnection]]:
    it = Controlled(root, monkeypatch)
    it.send(ev.JobSubmitted, job=Job(id="a", name="a", command=("x",), sizes=Sizes.parse("1:100")))
    it.train("a", *NODES)
    reports = {
        name: messages.WorkerReport(job="a", incarnation=it.state.nodes[name].incarnation, ready=True) for name in NODES
    }
    connections = {name: it.dial(name, reports[name]) for name in NODES}
    await asyncio.sleep(2 * pause_s(len(NODES)))
    return it, connections


def exit_of(it: Controlled, name: str) -> None:
    it.send(ev.WorkerExited, job="a", member=it.state.nodes[name].member, outcome="left")


def test_the_newest_supersedes_what_waits_and_is_told_as_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        it, connections = await training(tmp_path, monkeypatch)
        job = it.state.jobs["a"]
        heard = {name: len(connection._socket.heard) for name, connection in connections.items()}
        generation = job.generation
        monkeypatch.setattr(generation_sender, "_PAUSE_EACH_S", 0.01)
        for name in NODES[90:]:
            exit_of(it, name)
        assert job.generation == generation + 10
        await asyncio.sleep(1.2 * pause_s(len(NODES)))
        for name in NODES[:90]:
            all_of_it = connections[name]._socket.heard
            new = all_of_it[heard[name] :]
            assert [message.kind for message in new] == ["generation_change"]
            reader = GenerationReader()
            for message in all_of_it[: heard[name]]:
                reader.read(message)
            last = [reader.read(message) for message in new][-1]
            assert last.generation == job.generation
            assert [member.node for member in last.members] == list(NODES[:90])
        it.journal.close()

    asyncio.run(scenario())


def test_an_agent_that_comes_back_is_told_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        it, _ = await training(tmp_path, monkeypatch)
        report = messages.WorkerReport(job="a", incarnation=it.state.nodes["n000"].incarnation, ready=True)
        again = it.dial("n000", report)
        exit_of(it, "n099")
        await asyncio.sleep(2 * pause_s(len(NODES)))
        reader = GenerationReader()
        told = [reader.read(message) for message in again._socket.heard]
        assert told[-1].generation == it.state.jobs["a"].generation
        assert len(told[-1].members) == 99
        it.journal.close()

    asyncio.run(scenario())


def test_a_member_that_has_to_go_hears_first_who_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        it, connections = await training(tmp_path, monkeypatch)
        exit_of(it, "n099")
        it.send(ev.JobCancelled, job="a")
        kinds = [message.kind for message in connections["n000"]._socket.heard][-3:]
        assert kinds == ["generation_change", "generation", "stop"]
        it.journal.close()

    asyncio.run(scenario())


def test_small_generations_do_not_wait() -> None:
    assert pause_s(8) == 0.0
    assert pause_s(1000) == 0.25


def test_what_supersedes_tells_everybody_who_was_to_be_told() -> None:
    a, b, c, d = (Member(name, i) for i, name in enumerate("abcd"))
    common = {"job": "x", "cause": 1, "index": 0}
    older = effects.SetGeneration(
        generation=2,
        members=(a, c),
        previous=(a, b),
        abort=True,
        departing=(b,),
        **common,  # type: ignore[arg-type]
    )
    newer = effects.SetGeneration(
        generation=3,
        members=(c, d),
        previous=(a, c),
        abort=False,
        departing=(a,),
        **common,  # type: ignore[arg-type]
    )
    sent = superseding(newer, older)
    assert (sent.generation, sent.members, sent.abort) == (3, (c, d), True)
    assert sent.previous == (a, b, c)
    assert sent.departing == (b, a)
