"""The listener for agents: accepts connections within limits, and knows which agents have said who they are."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

import structlog

from offcut.service.agent_socket import AgentSocket, PeerProtocol
from offcut.service.limits import NetworkLimits

_log = structlog.get_logger()

#: Connections that may wait in the kernel while there is no room. The kernel has a limit of its own.
_BACKLOG = 4096
#: Connections accepted at a time, so that a flood of them leaves time for everything else.
_AT_ONCE = 256
#: Connections of one agent that were admitted and have not greeted.
_MOST_UNGREETED = 4
#: When there was no room, the listener is looked at again after this.
_LOOK_AGAIN_S = 0.05
#: The same where the system has no descriptors or memory left.
_EXHAUSTED_S = 0.5
_TLS_SHUTDOWN_S = 2.0
#: Of a flood of connections one line is logged in this many seconds.
_TELL_AGAIN_S = 60.0


class _Connection:
    """An accepted connection. `since_s` leaves out what this server was late."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        #: What its credential names, until it has greeted.
        self.peer: str | None = None
        self.socket: AgentSocket | None = None
        self.opening: asyncio.Task[None] | None = None
        self.limit: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        if self.opening is not None:
            self.opening.cancel()
        if self.socket is not None:
            self.socket.abort()


class AgentServer:
    """`admit` is given a connection and its Authorization header, and returns what is behind it, or None to refuse it.

    A connection is pending until it has shown a credential that is admitted. Pending ones have a limit of their own, so
    that strangers cannot keep agents out for longer than a moment: the oldest makes room. Agents that dial all at once
    do not displace each other that way. Of each there are a few connections at most for which `greeted` has not been
    called yet, its newest; `greeted` must be called within `limits.greeting_s`.
    """

    def __init__(
        self,
        listener: socket.socket,
        limits: NetworkLimits,
        admit: Callable[[AgentSocket, str], PeerProtocol | None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._listener = listener
        self._limits = limits
        self._admit = admit
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._all: set[_Connection] = set()
        #: The oldest first.
        self._pending: dict[_Connection, None] = {}
        #: By what the credential names: connections that were admitted and have not greeted, the oldest first.
        self._admitted: dict[str, list[_Connection]] = {}
        self._by_socket: dict[AgentSocket, _Connection] = {}
        self._closed = False
        #: How much later than due this loop has run in all: peers are not charged for their wait.
        self._late_s = 0.0
        self._told_s = -_TELL_AGAIN_S

    def start(self) -> None:
        self._listener.setblocking(False)
        self._listener.listen(_BACKLOG)
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Accept no more, and cut every connection."""
        self._closed = True
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for connection in list(self._all):
            connection.abort()

    def greeted(self, agent: AgentSocket) -> None:
        """Keep the connection open: its agent has said who it is."""
        connection = self._by_socket.get(agent)
        if connection is not None:
            self._awaited_no_more(connection)

    # -- accepting --------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if (wait_s := self._room_in_s()) is not None:
                self._pause(wait_s)
                return
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._tell("connections_cannot_be_accepted", error=error.strerror)
                self._pause(_EXHAUSTED_S)
                return
            self._open(accepted)

    def _room_in_s(self) -> float | None:
        """Return when to look again for room for one more connection, in seconds; None if there is room now."""
        limits = self._limits
        if len(self._all) < limits.connections and len(self._pending) < limits.pending:
            return None
        self._tell("connections_at_their_limit", open=len(self._all), pending=len(self._pending))
        oldest = next(iter(self._pending), None)
        if oldest is None or self._loop.time() - self._late_s - oldest.since_s < limits.displace_s:
            return _LOOK_AGAIN_S
        self._drop(oldest)
        return 0.0

    def _open(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        connection = _Connection(self._loop.time() - self._late_s)
        self._all.add(connection)
        self._pending[connection] = None
        connection.limit = self._loop.call_later(self._limits.greeting_s, self._drop, connection)
        connection.opening = self._loop.create_task(self._start(connection, accepted))
        connection.opening.add_done_callback(lambda task: self._opened(connection, accepted, task))

    async def _start(self, connection: _Connection, accepted: socket.socket) -> None:
        def protocol() -> AgentSocket:
            connection.socket = AgentSocket(self._limits, self._check, self._lost)
            self._by_socket[connection.socket] = connection
            return connection.socket

        times = {"ssl_handshake_timeout": self._limits.greeting_s, "ssl_shutdown_timeout": _TLS_SHUTDOWN_S}
        await self._loop.connect_accepted_socket(
            protocol, accepted, ssl=self._tls, **(times if self._tls is not None else {})
        )

    def _opened(self, connection: _Connection, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        connection.opening = None
        if connection.socket is None:
            accepted.close()  # cancelled before it had a transport, which would close it
        if task.cancelled() or task.exception() is not None:
            self._forget(connection)

    def _check(self, agent: AgentSocket, authorization: str) -> PeerProtocol | None:
        """Return what is behind the connection if its credential is admitted: it is not pending any more."""
        protocol = self._admit(agent, authorization)
        connection = self._by_socket.get(agent)
        if protocol is not None and connection is not None:
            self._pending.pop(connection, None)
            connection.peer = protocol.peer
            of_agent = self._admitted.setdefault(protocol.peer, [])
            of_agent.append(connection)
            if len(of_agent) > _MOST_UNGREETED:
                self._drop(of_agent[0])
        return protocol

    # -- ending -----------------------------------------------------------------------------------------------------

    def _drop(self, connection: _Connection) -> None:
        self._awaited_no_more(connection)
        connection.abort()

    def _awaited_no_more(self, connection: _Connection) -> None:
        """Forget that its agent is awaited: it has greeted, or the connection ends."""
        self._pending.pop(connection, None)
        if connection.peer is not None and connection in (of_agent := self._admitted.get(connection.peer, [])):
            of_agent.remove(connection)
            if not of_agent:
                del self._admitted[connection.peer]
        if connection.limit is not None:
            connection.limit.cancel()

    def _lost(self, agent: AgentSocket) -> None:
        connection = self._by_socket.get(agent)
        if connection is not None:
            self._forget(connection)

    def _forget(self, connection: _Connection) -> None:
        self._all.discard(connection)
        self._awaited_no_more(connection)
        if connection.socket is not None:
            self._by_socket.pop(connection.socket, None)

    def _pause(self, for_s: float) -> None:
        self._loop.remove_reader(self._listener)
        self._loop.call_later(for_s, self._go_on, self._loop.time() + for_s)

    def _go_on(self, due_s: float) -> None:
        self._late_s += self._loop.time() - due_s
        if not self._closed:
            self._loop.add_reader(self._listener, self._accept)

    def _tell(self, what: str, **facts: object) -> None:
        if self._loop.time() - self._told_s >= _TELL_AGAIN_S:
            self._told_s = self._loop.time()
            _log.warning(what, **facts)
