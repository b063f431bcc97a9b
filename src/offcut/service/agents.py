"""Connections of agents. A closed connection means that the agent is gone, unless it connects again within a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from offcut.control.network_blips import is_blip
from offcut.wire import messages

_log = structlog.get_logger()

#: An agent that was cut off may connect again for this long before its node counts as lost.
RECONNECT_S = 1.0
#: An agent that is connected and silent for this long is frozen or cut off.
SILENCE_S = 5.0
#: Added to that when enough agents are silent at once that the network is the likelier cause.
BLIP_S = 10.0


class Socket(Protocol):
    def send_text(self, text: str) -> None:
        """Send at once and in order; never wait for the peer."""
        ...

    def close(self) -> None: ...


class AgentConnection:
    """The connection of one agent: sends messages in order."""

    def __init__(self, node: str, pilot: str, socket: Socket) -> None:
        self.node = node
        self.pilot = pilot
        self.heard_s = asyncio.get_running_loop().time()
        self._socket = socket

        #: By job: the generation that was sent last, where the agent's node is in it.
        self._told: dict[str, int] = {}

    def send(self, message: messages.Message) -> None:
        self._socket.send_text(message.encoded)

    def send_generation(self, whole: messages.NewGeneration, change: messages.GenerationChange | None = None) -> None:
        """Send a generation: as `change`, if the generation that it changes is the last that was sent."""
        told = self._told.get(whole.job)
        self.send(whole if change is None or told != change.base else change)
        if whole.members:
            self._told[whole.job] = whole.generation
        else:
            self._told.pop(whole.job, None)

    def close(self) -> None:
        self._socket.close()


@dataclass(slots=True)
class _Missing:
    """An agent that is awaited until `timer` fires. `cut`: its connection broke without a close at `since_s`."""

    pilot: str
    timer: asyncio.TimerHandle
    since_s: float
    cut: bool


class Agents:
    """All connected agents by node.

    Args:
        gone: Called with the node and pilot of an agent that does not come back.
        is_held: Whether a node is still held, as far as the batch system has said.
        left: Called with the node of an agent that has closed its connection, as it does when it exits.
    """

    def __init__(
        self,
        gone: Callable[[str, str], None],
        is_held: Callable[[str], bool] = lambda node: True,
        left: Callable[[str], None] = lambda node: None,
    ) -> None:
        self._gone = gone
        self._is_held = is_held
        self._left = left
        self._connected: dict[str, AgentConnection] = {}
        self._missing: dict[str, _Missing] = {}

    def count(self) -> int:
        """Return how many agents are connected, or were a moment ago."""
        return len(self._connected) + len(self._missing)

    def missing(self) -> int:
        """Return how many agents were connected a moment ago, and are awaited."""
        return len(self._missing)

    def connected(self, connection: AgentConnection) -> None:
        missing = self._missing.pop(connection.node, None)
        if missing is not None:
            missing.timer.cancel()
        before, self._connected[connection.node] = self._connected.get(connection.node), connection
        if before is not None:
            before.close()

    def is_current(self, connection: AgentConnection) -> bool:
        """Return whether this is the node's present connection: another one may have replaced it."""
        return self._connected.get(connection.node) is connection

    def disconnected(self, connection: AgentConnection, *, cut: bool = True) -> None:
        """Note the end of a connection. `cut`: it ended without a close, as when the network or the node fails."""
        if not self.is_current(connection):
            return
        del self._connected[connection.node]
        if not cut:
            self._left(connection.node)
        self.expect(connection.node, connection.pilot, RECONNECT_S, cut=cut)

    def expect(self, node: str, pilot: str, within_s: float, *, cut: bool = False) -> None:
        """Count the hold as lost unless its agent dials in within `within_s`."""
        before = self._missing.get(node)
        if node in self._connected or (before is not None and before.pilot == pilot):
            return
        if before is not None:
            before.timer.cancel()
        loop = asyncio.get_running_loop()
        timer = loop.call_later(within_s, self._give_up, node)
        self._missing[node] = _Missing(pilot, timer, loop.time(), cut)

    def _give_up(self, node: str) -> None:
        loop, missing = asyncio.get_running_loop(), self._missing[node]
        left_s = missing.since_s + BLIP_S - loop.time()
        if missing.cut and left_s > 0 and self._is_held(node) and self._is_blip(len(self._silent(loop.time()))):
            missing.timer = loop.call_later(min(RECONNECT_S, left_s), self._give_up, node)
            return
        del self._missing[node]
        self._gone(node, missing.pilot)

    def _is_blip(self, silent: int) -> bool:
        cut = sum(missing.cut and self._is_held(node) for node, missing in self._missing.items())
        return is_blip(silent + cut, self.count())

    def _silent(self, now_s: float, for_s: float = SILENCE_S) -> list[AgentConnection]:
        return [connection for connection in self._connected.values() if now_s - connection.heard_s > for_s]

    def send_generation(
        self, node: str, whole: messages.NewGeneration, change: messages.GenerationChange | None = None
    ) -> None:
        """Send a generation to the node's agent (see `AgentConnection.send_generation`).

        It is dropped if there is none.
        """
        connection = self._connected.get(node)
        if connection is not None:
            connection.send_generation(whole, change)

    def send(self, node: str, message: messages.Message) -> None:
        """Send to the node's agent. Dropped if it is not connected: its end is an event by itself."""
        connection = self._connected.get(node)
        if connection is not None:
            connection.send(message)

    async def watch(self) -> None:
        """Close the connections of silent agents, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            before_s = loop.time()
            await asyncio.sleep(SILENCE_S / 10)
            # If this process itself did not get to run, an agent's silence proves nothing.
            if loop.time() - before_s > SILENCE_S / 3:
                continue
            silent = self._silent(loop.time())
            if silent and self._is_blip(len(silent)):
                silent = self._silent(loop.time(), SILENCE_S + BLIP_S)
            for connection in silent:
                _log.info("agent_silent", node=connection.node)
                del self._connected[connection.node]
                self._gone(connection.node, connection.pilot)
                connection.close()
