"""Whose messages the controller handles: those of the present connection of the agent that the credential names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from controlled import Controlled

from offcut.errors import ProtocolError
from offcut.service.agent_protocol import AgentProtocol
from offcut.wire import messages
from offcut.wire.credentials import Identity


class Line:
    """A connection as its protocol sees it."""

    peer_closed = False

    def __init__(self) -> None:
        self.closed = False

    def send_text(self, text: str) -> None:
        pass

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable:
    def run(scenario: Callable[[Controlled], None]) -> None:
        async def main() -> None:
            controlled = Controlled(tmp_path, monkeypatch)
            controlled.submit("a", "2")
            controlled.train("a", "n1", "n2")
            scenario(controlled)
            await asyncio.sleep(0)
            await controlled.controller.close()

        asyncio.run(main())

    return run


def protocol(it: Controlled, node: str = "n1", pilot: str = "p") -> AgentProtocol:
    return AgentProtocol(it.controller, Identity(node, pilot), Line(), lambda socket: None)  # type: ignore[arg-type]


def say(one: AgentProtocol, message: messages.Message) -> None:
    one.receive(message.model_dump_json().encode())


def hello(it: Controlled, node: str = "n1", pilot: str = "p") -> messages.Hello:
    incarnation = it.state.nodes[node].incarnation
    worker = messages.WorkerReport(job="a", incarnation=incarnation, ready=True, generation=1)
    return messages.Hello(node=node, pilot=pilot, workers=(worker,), incarnation=incarnation)


def test_what_a_replaced_connection_says_is_ignored(run: Callable) -> None:
    def scenario(it: Controlled) -> None:
        older, newer = protocol(it), protocol(it)
        say(older, hello(it))
        say(newer, hello(it))
        assert older._socket.closed  # type: ignore[attr-defined]
        incarnation = it.state.nodes["n1"].incarnation
        failed = messages.Exited(job="a", incarnation=incarnation, outcome="failed")
        say(older, failed)
        it.controller.gatherer.flush()
        assert [member.node for member in it.state.jobs["a"].members] == ["n1", "n2"]
        older.ended()
        assert it.controller.agents.count() == 1
        say(newer, failed)
        it.controller.gatherer.flush()
        assert [member.node for member in it.state.jobs["a"].members] != ["n1", "n2"]

    run(scenario)


@pytest.mark.parametrize(("node", "pilot"), [("n2", "p"), ("n1", "another")])
def test_a_hello_for_another_agent_than_the_credential_s_is_refused(run: Callable, node: str, pilot: str) -> None:
    def scenario(it: Controlled) -> None:
        with pytest.raises(ProtocolError, match="for another node or another hold"):
            say(protocol(it), hello(it, node, pilot))
        assert it.controller.agents.count() == 0

    run(scenario)


def test_the_agent_of_a_hold_that_is_over_is_refused(run: Callable) -> None:
    def scenario(it: Controlled) -> None:
        with pytest.raises(ProtocolError, match="is over"):
            say(protocol(it, "n1", "earlier"), hello(it, "n1", "earlier"))
        assert it.controller.agents.count() == 0

    run(scenario)


def test_reports_before_a_hello_are_refused(run: Callable) -> None:
    def scenario(it: Controlled) -> None:
        with pytest.raises(ProtocolError, match="instead of 'hello'"):
            say(protocol(it), messages.Note(job="a", text="hello"))

    run(scenario)
