"""Connections of agents. A closed connection means that the agent is gone, unless it is back within a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from offcut.wire import messages

_log = structlog.get_logger()

#: An agent that was cut off may dial in again for this long before its node counts as lost.
RECONNECT_S = 1.0
#: An agent that is connected and silent for this long is frozen or cut off.
SILENCE_S = 5.0


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

    def send(self, message: messages.Message) -> None:
        self._socket.send_text(message.encoded)

    def close(self) -> None:
        self._socket.close()


class Agents:
    """All connected agents by node; `gone` is called with the node and pilot of an agent that does not come back."""

    def __init__(self, gone: Callable[[str, str], None]) -> None:
        self._gone = gone
        self._connected: dict[str, AgentConnection] = {}
        #: By node: the pilot whose agent is awaited, until its timer fires.
        self._missing: dict[str, tuple[str, asyncio.TimerHandle]] = {}

    def connected(self, connection: AgentConnection) -> None:
        missing = self._missing.pop(connection.node, None)
        if missing is not None:
            missing[1].cancel()
        before, self._connected[connection.node] = self._connected.get(connection.node), connection
        if before is not None:
            before.close()

    def is_current(self, connection: AgentConnection) -> bool:
        """Return whether this is the node's present connection: another one may have replaced it."""
        return self._connected.get(connection.node) is connection

    def disconnected(self, connection: AgentConnection) -> None:
        if not self.is_current(connection):
            return
        del self._connected[connection.node]
        self.expect(connection.node, connection.pilot, RECONNECT_S)

    def expect(self, node: str, pilot: str, within_s: float) -> None:
        """Count the hold as lost unless its agent dials in within `within_s`."""
        before = self._missing.get(node)
        if node in self._connected or (before is not None and before[0] == pilot):
            return
        if before is not None:
            before[1].cancel()
        timer = asyncio.get_running_loop().call_later(within_s, self._give_up, node, pilot)
        self._missing[node] = pilot, timer

    def _give_up(self, node: str, pilot: str) -> None:
        self._missing.pop(node, None)
        self._gone(node, pilot)

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
            for connection in list(self._connected.values()):
                if loop.time() - connection.heard_s > SILENCE_S:
                    _log.info("agent_silent", node=connection.node)
                    del self._connected[connection.node]
                    self._gone(connection.node, connection.pilot)
                    connection.close()
