"""What happens to many nodes within a moment is one event, one generation and one call to the batch system."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from controlled import Controlled

from offcut.model import Job, Sizes
from offcut.model import events as ev
from offcut.service.event_gatherer import EventGatherer, gathering_time_s
from offcut.wire import messages

NODES = tuple(f"n{i:02d}" for i in range(40))


async def training(root: Path, monkeypatch: pytest.MonkeyPatch) -> Controlled:
    """Let a job train on 40 nodes, whose agents are connected."""
    it = Controlled(root, monkeypatch)
    it.send(ev.JobSubmitted, job=Job(id="a", name="a", command=("x",), sizes=Sizes.parse("1:40")))
    it.train("a", *NODES)
    for name in NODES:
        it.dial(name, messages.WorkerReport(job="a", incarnation=it.state.nodes[name].incarnation, ready=True))
    return it


def kinds(it: Controlled, since: int) -> list[str]:
    return [event.kind for number, event in it.journal.events() if number > since]


def test_workers_that_leave_within_a_moment_cost_one_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        it = await training(tmp_path, monkeypatch)
        job = it.state.jobs["a"]
        generation, since = job.generation, it.state.event_id
        for name in NODES[20:]:
            incarnation = it.state.nodes[name].incarnation
            it.controller.agent_said(name, messages.Exited(job="a", incarnation=incarnation, outcome="left"))
        await asyncio.sleep(0.1)
        assert job.generation == generation + 1
        assert [member.node for member in job.members] == list(NODES[:20])
        assert kinds(it, since) == ["events_gathered"]
        before = it.state
        it.restart()
        assert it.state.jobs == before.jobs, "the journal tells the same"
        it.journal.close()

    asyncio.run(scenario())


def test_agents_that_are_gone_within_a_moment_are_one_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        it = await training(tmp_path, monkeypatch)
        job = it.state.jobs["a"]
        generation, since = job.generation, it.state.event_id
        it.cluster.calls.clear()
        for name in NODES[:10]:
            it.controller._agent_gone(name, "p")
        await asyncio.sleep(0.1)
        assert kinds(it, since) == ["events_gathered"]
        assert job.generation == generation + 1
        assert [nodes for call, nodes in it.cluster.calls if call == "release"] == [NODES[:10]]
        it.journal.close()

    asyncio.run(scenario())


def test_a_wanted_node_waits_for_nothing_and_takes_along_what_waits() -> None:
    async def scenario() -> None:
        told: list[ev.Event] = []

        def handle(event: ev.Event) -> bool:
            told.append(event)
            return True

        gatherer = EventGatherer(handle, lambda: 100)
        lost, wanted = ev.NodesChanged(time_s=1.0, lost=("n1",)), ev.NodesChanged(time_s=2.0, wanted=("n2",))
        gatherer.add(lost)
        assert told == []
        gatherer.add(wanted, at_once=True)
        assert told == [ev.EventsGathered(time_s=2.0, events=(lost, wanted))]

    asyncio.run(scenario())


def test_one_that_cannot_be_answered_does_not_take_the_others_along() -> None:
    async def scenario() -> None:
        told: list[ev.Event] = []

        def handle(event: ev.Event) -> bool:
            told.append(event)
            return not isinstance(event, ev.EventsGathered)

        gatherer = EventGatherer(handle, lambda: 100)
        each = [ev.NodesChanged(time_s=float(i), lost=(f"n{i}",)) for i in range(3)]
        for event in each:
            gatherer.add(event)
        gatherer.flush()
        gatherer.flush()
        assert told[1:] == each

    asyncio.run(scenario())


def test_few_agents_are_not_waited_for() -> None:
    assert gathering_time_s(4) == 0.0
    assert gathering_time_s(1000) == 0.05
