"""The simulated network between agents and the controller: connections like TCP's, which are late, break, and hang.

Within one connection messages come in order; they are lost only together with the connection, from some message on.
What the other end has of a message whose sender saw an error is not known: so one that is sent again comes twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Protocol

from offcut.errors import OffcutError, ProtocolError
from offcut.testing.campaign.simulated_loop import Process, SimulatedLoop
from offcut.testing.campaign.trace import Trace

#: How long an open connection takes to notice that nothing comes through: the WebSocket's pings.
_PING_S = 40.0
_HEARTBEAT = '{"kind":"heartbeat"}'


class Receiver(Protocol):
    """The controller's side of one connection: `service.agent_protocol.AgentProtocol`."""

    def receive(self, data: bytes) -> int: ...

    def refuse(self, reason: str) -> None: ...

    def ended(self) -> None: ...


class Listener(Protocol):
    """What listens for agents: a running controller."""

    process: Process

    def admit(self, node: str, pilot: str, side: ControllerSide) -> Receiver: ...


class Network:
    """`late` is the share of messages that take long."""

    def __init__(self, loop: SimulatedLoop, trace: Trace, random: Random, *, late: float = 0.12) -> None:
        self.loop = loop
        self.trace = trace
        self.random = random
        self.late = late
        self.listener: Listener | None = None
        #: Pilots whose agents have a credential.
        self.issued: set[str] = set()
        #: Nodes between which and the controller nothing comes through, until then.
        self.partitioned_until_s: dict[str, float] = {}
        self.connections: dict[int, Connection] = {}
        self._numbers = 0

    def delay_s(self, what: str) -> float:
        """Draw how long a message is on its way."""
        if self.random.random() < self.late:
            delay_s = self.random.choice((0.05, 0.3, 1.0, 2.5)) * self.random.uniform(0.5, 1.5)
            self.trace.fault("late", f"{what}: {delay_s:.3f} s")
            return delay_s
        return self.random.uniform(0.0002, 0.004)

    def dead_until_s(self, node: str) -> float:
        """Return until when nothing comes through between this node and the controller."""
        return max(self.partitioned_until_s.get(node, 0.0), self.partitioned_until_s.get("", 0.0))

    def dial(self, node: str, pilot: str, process: Process) -> Callable[[], Any]:
        """Return how the agent of this node opens a connection."""

        @asynccontextmanager
        async def connect() -> AsyncIterator[AgentSide]:
            loop = self.loop
            await asyncio.sleep(self.random.uniform(0.001, 0.01))
            if loop.time() < self.dead_until_s(node):
                await asyncio.sleep(min(10.0, self.dead_until_s(node) - loop.time() + 0.5))
                raise TimeoutError("no answer")
            listener = self.listener
            if pilot not in self.issued:
                raise FileNotFoundError("no credential yet")
            if listener is None or not listener.process.alive:
                raise ConnectionRefusedError("nothing listens")
            self._numbers += 1
            connection = Connection(self, self._numbers, node, process, listener.process)
            self.connections[connection.number] = connection
            connection.server.receiver = listener.admit(node, pilot, connection.server)
            try:
                yield connection.client
            finally:
                connection.client.close()

        return connect

    def cut(self, connection: Connection, *, known: bool) -> None:
        """Break a connection: what is on its way is lost. `known`: both ends are told; otherwise they find out."""
        connection.break_off(notice_s=self.random.uniform(0.0, 0.05) if known else _PING_S)


class Connection:
    """One connection: two ends, and what is on its way between them."""

    def __init__(self, network: Network, number: int, node: str, agent: Process, controller: Process) -> None:
        self.network = network
        self.number = number
        self.node = node
        self.broken = False
        self.client = AgentSide(self)
        self.server = ControllerSide(self)
        self._ends = {"agent": agent, "controller": controller}
        self._due_s = {"agent": 0.0, "controller": 0.0}
        #: Messages that were sent before the break come through only up to this number.
        self._sent = {"agent": 0, "controller": 0}
        agent.on_end.append(self._agent_died)
        controller.on_end.append(self._controller_died)

    def send(self, to: str, text: str) -> None:
        """Put a message on its way."""
        network = self.network
        if self.broken:
            return
        heartbeat = text == _HEARTBEAT
        delay_s = 0.001 if heartbeat else network.delay_s(f"{self.node} to {to}")
        self._later(to, delay_s, self._deliver, to, text, heartbeat)

    def _later(self, to: str, delay_s: float, call: Callable[..., None], *arguments: Any) -> None:
        loop = self.network.loop
        at_s = max(self._due_s[to], loop.time() + delay_s, self.network.dead_until_s(self.node))
        self._due_s[to] = at_s
        loop.call_at(at_s, call, *arguments, context=self._ends[to].context)

    def _deliver(self, to: str, text: str, heartbeat: bool) -> None:
        if self.broken:
            if not heartbeat:
                self.network.trace.fault("lost", f"{self.node} to {to}: {text}")
            return
        if self.network.loop.time() < self.network.dead_until_s(self.node):
            self._later(to, 0.0, self._deliver, to, text, heartbeat)  # it is sent again once it comes through
            return
        if not heartbeat:
            self.network.trace.event(f"message to {to}", f"{self.node} {text}")
        (self.client.receive if to == "agent" else self.server.receive)(text)

    def end(self, by: str) -> None:
        """End the connection in good order: the other end gets what was sent, then the end."""
        other = "controller" if by == "agent" else "agent"
        if not self.broken:
            self._later(other, 0.001, self._ended, other, False)

    def _ended(self, at: str, cut: bool) -> None:
        self.broken = True
        self.network.connections.pop(self.number, None)
        (self.client if at == "agent" else self.server).note_end(cut=cut)

    def break_off(self, notice_s: float) -> None:
        """Break it: nothing comes through from now on, and each end notices that after a while."""
        if self.broken:
            return
        self.broken = True
        self.network.connections.pop(self.number, None)
        for at in ("agent", "controller"):
            loop = self.network.loop
            side = self.client if at == "agent" else self.server
            loop.call_later(notice_s, side.note_end, context=self._ends[at].context)

    def _agent_died(self) -> None:
        """Close the connection, as the kernel does when a process ends: the other end gets all that was sent."""
        if not self.broken:
            self._later("controller", 0.002, self._ended, "controller", True)

    def _controller_died(self) -> None:
        if not self.broken:
            self._later("agent", 0.002, self._ended, "agent", True)


class AgentSide:
    """The agent's end: see `agent.controller_dial.ControllerSocket`."""

    host = "10.0.0.1"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._arrived: deque[str] = deque()
        self._over = False
        self._cut = False
        self._waiting: asyncio.Future[None] | None = None

    async def send(self, text: str) -> None:
        if self._over or self._connection.broken:
            raise ConnectionResetError("the connection has ended")
        self._connection.send("controller", text)

    def receive(self, text: str) -> None:
        self._arrived.append(text)
        self._wake()

    def note_end(self, *, cut: bool = True) -> None:
        self._over, self._cut = True, cut
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._connection.end("agent")

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            while self._arrived:
                yield self._arrived.popleft()
            if self._over:
                if self._cut:
                    raise ConnectionResetError("the connection broke")
                return
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting


class ControllerSide:
    """The controller's end: see `service.agent_protocol.AgentSide`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.receiver: Receiver | None = None
        self.peer_closed = False
        self._over = False

    def send_text(self, text: str) -> None:
        if not self._over:
            self._connection.send("agent", text)

    def receive(self, text: str) -> None:
        if self._over or self.receiver is None:
            return
        try:
            self.receiver.receive(text.encode())
        except ProtocolError as error:
            self._connection.network.trace.note("controller", f"refuses {self._connection.node}: {error}")
            self.receiver.refuse(str(error))
            self.close()
        except OffcutError as error:
            self._connection.network.trace.note("controller", f"does not serve {self._connection.node}: {error}")
            self.close()

    def note_end(self, *, cut: bool = True) -> None:
        if not self._over:
            self._over = True
            self.peer_closed = not cut
            if self.receiver is not None:
                self.receiver.ended()

    def close(self) -> None:
        if not self._over:
            self._connection.end("controller")
            self.note_end()
