"""After a restart of the controller every agent that comes back is told the newest generation; nobody is told it N
times.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from controlled import Controlled

from offcut.model import Job, JobMode, Sizes
from offcut.model import events as ev
from offcut.wire import messages

NODES = tuple(f"n{i}" for i in range(6))


@pytest.mark.parametrize("mode", ["session", "restart"])
def test_each_agent_is_told_once_or_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: JobMode) -> None:
    async def scenario() -> None:
        controlled = Controlled(tmp_path, monkeypatch)
        job = Job(id="a", name="a", command=("x",), sizes=Sizes.parse("6"), mode=mode)
        controlled.send(ev.JobSubmitted, job=job)
        controlled.train("a", *NODES)
        members = controlled.state.jobs["a"].members
        controlled.restart()
        reports = [
            messages.WorkerReport(job="a", incarnation=member.incarnation, ready=True, address=f"{member.node}:1")
            for member in members
        ]
        connections = [controlled.dial(member.node, report) for member, report in zip(members, reports, strict=True)]
        for connection in connections:
            told = [message for message in connection._socket.heard if isinstance(message, messages.NewGeneration)]
            assert 1 <= len(told) <= 2
            assert told[-1].generation == controlled.state.jobs["a"].generation
        controlled.journal.close()

    asyncio.run(scenario())


def test_agents_that_come_back_before_the_rendezvous_store_answers_are_told_once_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        controlled = Controlled(tmp_path, monkeypatch)
        controlled.submit("a", "6")
        controlled.train("a", *NODES)
        members = controlled.state.jobs["a"].members
        controlled.restart()
        rendezvous = controlled.controller.rendezvous
        rendezvous.address = None
        connections = [
            controlled.dial(
                member.node, messages.WorkerReport(job="a", incarnation=member.incarnation, ready=True, generation=1)
            )
            for member in members
        ]
        assert not any(connection._socket.heard for connection in connections)
        rendezvous.address = "127.0.0.1:1"
        rendezvous._changed()
        rendezvous._changed()
        for connection in connections:
            (told,) = connection._socket.heard
            assert told.generation == controlled.state.jobs["a"].generation
        controlled.journal.close()

    asyncio.run(scenario())
