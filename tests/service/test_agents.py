"""Connections of agents: the newest one of a node counts, and a lost connection counts for one pilot only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from offcut.control import Settings
from offcut.model import events
from offcut.service import agents as module
from offcut.service.agents import AgentConnection, Agents
from offcut.service.controller import Controller
from offcut.service.paths import StatePaths
from offcut.store.journal import Journal


class Line:
    closed = False

    def send_text(self, text: str) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def play(monkeypatch: pytest.MonkeyPatch, scenario: Callable[[Agents], Awaitable[None]]) -> list[tuple[str, str]]:
    """Return which agents were given up."""
    monkeypatch.setattr(module, "RECONNECT_S", 0.05)
    gone: list[tuple[str, str]] = []

    async def run() -> None:
        agents = Agents(lambda node, pilot: gone.append((node, pilot)))
        await scenario(agents)
        await asyncio.sleep(0.2)

    asyncio.run(run())
    return gone


def test_an_agent_that_comes_back_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(agents: Agents) -> None:
        first = AgentConnection("n1", "p", Line())
        agents.connected(first)
        agents.disconnected(first)
        agents.connected(AgentConnection("n1", "p", Line()))

    assert play(monkeypatch, scenario) == []


def test_an_agent_that_does_not_come_back_is_given_up_by_its_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(agents: Agents) -> None:
        first = AgentConnection("n1", "p", Line())
        agents.connected(first)
        agents.disconnected(first)
        agents.disconnected(first)

    assert play(monkeypatch, scenario) == [("n1", "p")]


def test_a_newer_awaited_pilot_replaces_the_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(agents: Agents) -> None:
        agents.expect("n1", "old", 0.01)
        agents.expect("n1", "new", 0.05)

    assert play(monkeypatch, scenario) == [("n1", "new")]


def test_an_older_connection_of_a_node_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(agents: Agents) -> None:
        line = Line()
        first, second = AgentConnection("n1", "p", line), AgentConnection("n1", "p", Line())
        agents.connected(first)
        agents.connected(second)
        assert line.closed
        assert not agents.is_current(first)
        agents.disconnected(first)
        assert agents.is_current(second)

    assert play(monkeypatch, scenario) == []


class HeldAgain:
    """A cluster that has claimed n1 again since."""

    def pilot(self, node: str) -> str:
        return "new"

    async def release(self, nodes: Sequence[str]) -> None:
        pass

    def set_demand(self, nodes: int) -> None:
        pass


def test_the_end_of_an_old_pilot_does_not_end_the_next_one(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal(tmp_path / "journal.sqlite")
        state = journal.load(Settings())
        controller = Controller(state, journal, HeldAgain(), StatePaths(tmp_path))  # type: ignore[arg-type]
        controller.handle(events.NodesChanged(time_s=1.0, offered=(events.Offer("n1"),)))
        state.nodes["n1"].phase = "claimed"
        controller._agent_gone("n1", "old")
        assert "n1" in state.nodes
        controller._agent_gone("n1", "new")
        assert "n1" not in state.nodes
        await asyncio.sleep(0)
        await controller.close()

    asyncio.run(run())


def cut_off(
    monkeypatch: pytest.MonkeyPatch, nodes: int, *, back: int, cut: bool = True, held: bool = True
) -> list[str]:
    """The nodes given up within 0.2 s when the connections of all agents break at once, and `back` dial in again."""
    monkeypatch.setattr(module, "RECONNECT_S", 0.02)
    monkeypatch.setattr(module, "BLIP_S", 0.5)
    gone: list[str] = []

    async def run() -> None:
        agents = Agents(lambda node, pilot: gone.append(node), lambda node: held)
        connections = [AgentConnection(f"n{i}", "p", Line()) for i in range(nodes)]
        for connection in connections:
            agents.connected(connection)
        for connection in connections:
            agents.disconnected(connection, cut=cut)
        await asyncio.sleep(0.2)
        for connection in connections[:back]:
            agents.connected(AgentConnection(connection.node, "p", Line()))
        early = list(gone)
        await asyncio.sleep(0.6)
        assert set(gone) == {connection.node for connection in connections[back:]} | set(early)
        gone[:] = early

    asyncio.run(run())
    return gone


def test_a_network_blip_is_not_the_death_of_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cut_off(monkeypatch, 200, back=200) == []


def test_those_that_do_not_come_back_after_a_blip_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cut_off(monkeypatch, 200, back=150) == []


def test_a_few_that_are_cut_off_are_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(cut_off(monkeypatch, 8, back=0)) == 8


@pytest.mark.parametrize("why", [{"cut": False}, {"held": False}])
def test_agents_that_closed_or_were_killed_are_not_a_blip(
    monkeypatch: pytest.MonkeyPatch, why: dict[str, bool]
) -> None:
    assert len(cut_off(monkeypatch, 200, back=0, **why)) == 200


@pytest.mark.parametrize(("silent", "given_up"), [(3, 3), (150, 0)])
def test_many_that_are_silent_at_once_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, silent: int, given_up: int
) -> None:
    gone: list[str] = []

    async def run() -> None:
        agents = Agents(lambda node, pilot: gone.append(node))
        for i in range(200):
            connection = AgentConnection(f"n{i}", "p", Line())
            agents.connected(connection)
            if i < silent:
                connection.heard_s -= module.SILENCE_S + 1
        watch = asyncio.create_task(agents.watch())
        await asyncio.sleep(0.2 * module.SILENCE_S)
        watch.cancel()

    asyncio.run(run())
    assert len(gone) == given_up
