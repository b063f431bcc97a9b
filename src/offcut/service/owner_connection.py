"""A connection to the owner's socket: HTTP, and the process at the other end is known to what answers."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from offcut.process.unix_socket import peer_of
from offcut.service.audit import PEER


class OwnerConnection(H11Protocol):
    """uvicorn's HTTP connection, which passes the peer on in the state of each request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, PEER: peer_of(transport.get_extra_info("socket"))}
