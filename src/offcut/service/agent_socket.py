"""One connection from the network: a WebSocket that belongs to an agent, or is closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from typing import Protocol

import structlog
from websockets.exceptions import InvalidState
from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from offcut.errors import OffcutError, ProtocolError
from offcut.service.limits import NetworkLimits

_log = structlog.get_logger()

#: The only path that agents may ask for.
PATH = "/v1/agents"

_REFUSAL = "Agents of this controller only. Commands: offcut --help\n"
#: The same in answer to anything but a request for a WebSocket: one with a body, or not HTTP at all.
_RAW_REFUSAL = (
    f"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: {len(_REFUSAL)}\r\n"
    f"Content-Type: text/plain; charset=utf-8\r\n\r\n{_REFUSAL}"
).encode()

#: How long the peer may take to close a connection after our close.
_CLOSE_S = 2.0
#: The window of permessage-deflate is 2 to this power bytes.
_WINDOW_BITS = 12
_COMPRESSION = {"memLevel": 5}
#: Shorter messages are sent as they are.
_SHORT_BYTES = 200
#: A peer may send this many seconds' worth of messages at once.
_BURST_S = 2.0

#: Silent: it would log every connection of a stranger.
_quiet = logging.getLogger("offcut.websocket")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


@lru_cache(maxsize=64)
def encode_frame(text: str, deflate: bool) -> bytes:
    """Return a text message as the frame that is sent; a message to many agents is encoded once.

    Args:
        text: The message.
        deflate: Compress it (RFC 7692, with an empty window), unless it is too short to gain by that.
    """
    data = text.encode()
    if not deflate or len(data) < _SHORT_BYTES:
        return Frame(Opcode.TEXT, data).serialize(mask=False)
    fresh = PerMessageDeflate(False, True, _WINDOW_BITS, _WINDOW_BITS, dict(_COMPRESSION))
    return Frame(Opcode.TEXT, data).serialize(mask=False, extensions=[fresh])


class PeerProtocol(Protocol):
    """What is behind an accepted connection."""

    @property
    def peer(self) -> str:
        """What the credential names: connections with the same one are of the same agent."""
        ...

    def receive(self, data: bytes) -> int:
        """Handle one text message. Return how many messages it counts as in what a peer may send.

        ProtocolError ends the connection, and its sentence is told to the peer.
        """
        ...

    def refuse(self, reason: str) -> None:
        """Tell the peer why the connection ends."""
        ...

    def ended(self) -> None:
        """Note that the connection is closed. Called once."""
        ...


class AgentSocket(asyncio.Protocol):
    """The server's end of one connection.

    Nothing is read of a request but its headers, and the headers decide: `admit` is given the Authorization header and
    returns what takes the messages, or None. A peer that is not admitted gets one answer, whatever it asked for.
    """

    def __init__(
        self,
        limits: NetworkLimits,
        admit: Callable[[AgentSocket, str], PeerProtocol | None],
        lost: Callable[[AgentSocket], None],
    ) -> None:
        self._limits = limits
        self._admit = admit
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        # The window is small: a connection costs tens of KiB instead of hundreds. What is sent is compressed without
        # what was sent before: then a message is compressed once, for all agents that it is sent to.
        deflate = ServerPerMessageDeflateFactory(
            server_no_context_takeover=True,
            server_max_window_bits=_WINDOW_BITS,
            client_max_window_bits=_WINDOW_BITS,
            compress_settings=_COMPRESSION,
        )
        self._ws = ServerProtocol(extensions=[deflate], max_size=limits.message_bytes, logger=_quiet)
        self._transport: asyncio.Transport | None = None
        self._protocol: PeerProtocol | None = None
        self._header_bytes = 0
        self._fragments: list[bytes] = []
        self._aborting: asyncio.TimerHandle | None = None
        #: Messages and bytes that may be received at this moment; both grow with time up to a burst.
        self._messages_left = limits.messages_per_s * _BURST_S
        self._bytes_left = limits.bytes_per_s * _BURST_S
        self._refilled_s = self._loop.time()
        self._resuming: asyncio.TimerHandle | None = None

    # -- the server's side ------------------------------------------------------------------------------------------

    def send_text(self, text: str) -> None:
        """Send at once; nothing happens on a closed connection. A peer that does not read is cut off."""
        if self._transport is None or self._ws.state is not State.OPEN or self._transport.is_closing():
            return
        self._flush()  # frames of the protocol itself, a pong say, are in order with ours
        self._transport.write(encode_frame(text, self._deflates()))
        if self._transport.get_write_buffer_size() > self._limits.unsent_bytes:
            self.abort()

    @property
    def peer_closed(self) -> bool:
        """Whether the peer has said that it ends the connection."""
        return self._ws.close_rcvd is not None

    def close(self) -> None:
        """End the connection in good order, and by force if the peer does not answer."""
        with suppress(InvalidState):
            self._ws.send_close(CloseCode.NORMAL_CLOSURE)
        self._flush()
        self._abort_soon()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _deflates(self) -> bool:
        """Return whether the peer can read messages that were compressed as `encode_frame` does it."""
        return any(
            isinstance(extension, PerMessageDeflate) and extension.local_max_window_bits == _WINDOW_BITS
            for extension in self._ws.extensions
        )

    # -- asyncio's side ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._protocol is None:
            self._header_bytes += len(data)
            if self._header_bytes > self._limits.header_bytes:
                self.abort()
                return
        counted = self._receive(data)
        self._slow_down(len(data), counted)

    def eof_received(self) -> None:
        self._ws.receive_eof()

    def connection_lost(self, error: Exception | None) -> None:
        for timer in (self._aborting, self._resuming):
            if timer is not None:
                timer.cancel()
        protocol, self._protocol = self._protocol, None
        self._lost(self)
        if protocol is not None:
            protocol.ended()

    # -- in between -------------------------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> int:
        """Handle what has arrived. Return how many messages it counts as; every frame counts as one at least."""
        self._ws.receive_data(data)
        counted = 0
        events = self._ws.events_received()
        unread = not events and self._protocol is None and self._ws.handshake_exc is not None
        if unread and self._transport is not None and not self._transport.is_closing():
            self._transport.write(_RAW_REFUSAL)
        for event in events:
            if isinstance(event, Request):
                self._open(event)
            elif isinstance(event, Frame):
                counted += max(1, self._take(event))
        self._flush()
        if self._ws.close_expected():
            self._abort_soon()
        return counted

    def _open(self, request: Request) -> None:
        header = request.headers.get_all("Authorization")
        protocol = self._admit(self, header[0]) if len(header) == 1 and request.path == PATH else None
        if protocol is None:
            self._ws.send_response(self._ws.reject(HTTPStatus.UNAUTHORIZED, _REFUSAL))
            return
        response = self._ws.accept(request)
        self._ws.send_response(response)
        if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            self._protocol = protocol

    def _take(self, frame: Frame) -> int:
        if frame.opcode not in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT) or self._protocol is None:
            return 0
        if frame.opcode is Opcode.BINARY:
            self._end("An agent's messages are text; this one is binary.")
            return 0
        self._fragments.append(bytes(frame.data))
        if not frame.fin:
            return 0
        whole = b"".join(self._fragments)
        self._fragments.clear()
        try:
            return self._protocol.receive(whole)
        except ProtocolError as error:
            self._end(str(error))
        except OffcutError as error:
            _log.error("agent_not_served", error=str(error))
            self.close()
        return 0

    def _end(self, reason: str) -> None:
        if self._protocol is not None and self._ws.state is State.OPEN:
            self._protocol.refuse(reason)
            self.close()

    def _flush(self) -> None:
        for data in self._ws.data_to_send():
            if self._transport is None or self._transport.is_closing():
                continue
            if data:
                self._transport.write(data)
            else:
                self._transport.close()

    def _abort_soon(self) -> None:
        if self._aborting is None:
            self._aborting = self._loop.call_later(_CLOSE_S, self.abort)

    def _slow_down(self, data_bytes: int, counted: int) -> None:
        """Stop reading until the peer is back within the rate at which it may send."""
        limits, now_s = self._limits, self._loop.time()
        passed_s, self._refilled_s = now_s - self._refilled_s, now_s
        self._messages_left = (
            min(limits.messages_per_s * _BURST_S, self._messages_left + limits.messages_per_s * passed_s) - counted
        )
        self._bytes_left = (
            min(limits.bytes_per_s * _BURST_S, self._bytes_left + limits.bytes_per_s * passed_s) - data_bytes
        )
        debt_s = max(-self._messages_left / limits.messages_per_s, -self._bytes_left / limits.bytes_per_s)
        if debt_s > 0 and self._transport is not None and not self._transport.is_closing() and self._resuming is None:
            self._transport.pause_reading()
            self._resuming = self._loop.call_later(debt_s, self._resume)

    def _resume(self) -> None:
        self._resuming = None
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
