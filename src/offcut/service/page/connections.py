"""Accepts browsers' connections within limits, so that strangers cannot use up the controller's descriptors.

A connection is *pending* until its first request is there, headers and all. A request without the token closes it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

#: From the first byte to a whole request; and a TLS handshake takes no longer either.
_REQUEST_S = 10.0
#: Where there is no room, the oldest pending connection makes room once it is this old; then it is looked again.
_DISPLACE_S = 1.0
_LOOK_AGAIN_S = 0.1
_AT_ONCE = 64
_BACKLOG = 256
_TLS_SHUTDOWN_S = 2.0

#: Without uvicorn's warnings about requests that cannot be read: with those, a stranger could fill the log.
_errors_only = logging.getLogger("offcut.page")
_errors_only.setLevel(logging.ERROR)


class _Connection(H11Protocol):
    """One connection. `lost` is called when it has ended."""

    lost: Callable[[_Connection], None]

    @property
    def pending(self) -> bool:
        """Return whether no request has come yet."""
        return self.cycle is None

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection has ended."""
        super().connection_lost(exc)
        self.lost(self)


class _Accepted:
    """An accepted socket, at first without a protocol: a TLS handshake comes before it."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.connection: _Connection | None = None
        self.opening: asyncio.Task[None] | None = None
        self.limit: asyncio.TimerHandle | None = None

    @property
    def pending(self) -> bool:
        return self.connection is None or self.connection.pending

    def abort(self) -> None:
        if self.opening is not None:
            self.opening.cancel()
        if self.connection is not None and self.connection.transport is not None:
            self.connection.transport.abort()


class Connections:
    """The open connections of one listener.

    Args:
        listener: where browsers connect; it is closed by `close`.
        server: has been started without sockets of its own.
        tls: for TLS; None: in the clear.
        most: at most this many connections at once.
    """

    def __init__(self, listener: socket.socket, server: uvicorn.Server, tls: ssl.SSLContext | None, most: int) -> None:
        self._listener = listener
        self._server = server
        self._tls = tls
        self._most = most
        self._loop = asyncio.get_running_loop()
        #: The oldest first.
        self._open: dict[_Accepted, None] = {}
        self._closed = False

    def start(self) -> None:
        """Accept connections from now on."""
        self._listener.setblocking(False)
        self._listener.listen(_BACKLOG)
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Accept no more, and cut every connection."""
        self._closed = True
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for accepted in list(self._open):
            accepted.abort()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if len(self._open) >= self._most and not self._make_room():
                self._pause()
                return
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptors or memory are left
                self._pause()
                return
            self._begin(accepted)

    def _make_room(self) -> bool:
        """Cut the oldest pending connection if it is old enough; return whether there is room now."""
        oldest = next((accepted for accepted in self._open if accepted.pending), None)
        if oldest is None or self._loop.time() - oldest.since_s < _DISPLACE_S:
            return False
        self._drop(oldest)
        return True

    def _begin(self, raw: socket.socket) -> None:
        raw.setblocking(False)
        accepted = _Accepted(self._loop.time())
        self._open[accepted] = None
        accepted.limit = self._loop.call_later(_REQUEST_S, self._check, accepted)
        accepted.opening = self._loop.create_task(self._connect(accepted, raw))
        accepted.opening.add_done_callback(lambda task: self._connected(accepted, raw, task))

    async def _connect(self, accepted: _Accepted, raw: socket.socket) -> None:
        def protocol() -> _Connection:
            connection = _Connection(
                config=self._server.config, server_state=self._server.server_state, app_state={}, _loop=self._loop
            )
            connection.lost = lambda _: self._forget(accepted)
            connection.logger = _errors_only
            accepted.connection = connection
            return connection

        times = {"ssl_handshake_timeout": _REQUEST_S, "ssl_shutdown_timeout": _TLS_SHUTDOWN_S}
        await self._loop.connect_accepted_socket(
            protocol, raw, ssl=self._tls, **(times if self._tls is not None else {})
        )

    def _connected(self, accepted: _Accepted, raw: socket.socket, task: asyncio.Task[None]) -> None:
        accepted.opening = None
        if accepted.connection is None:
            raw.close()  # cancelled before it had a transport, which would close it
        if task.cancelled() or task.exception() is not None:
            self._forget(accepted)

    def _check(self, accepted: _Accepted) -> None:
        if accepted.pending:
            self._drop(accepted)

    def _drop(self, accepted: _Accepted) -> None:
        self._forget(accepted)
        accepted.abort()

    def _forget(self, accepted: _Accepted) -> None:
        self._open.pop(accepted, None)
        if accepted.limit is not None:
            accepted.limit.cancel()

    def _pause(self) -> None:
        self._loop.remove_reader(self._listener)
        self._loop.call_later(_LOOK_AGAIN_S, self._go_on)

    def _go_on(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener, self._accept)
