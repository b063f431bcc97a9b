"""How an agent reaches its controller: a WebSocket, with the address and the credential out of two files."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from offcut.errors import OffcutError
from offcut.process.daemon_thread import in_daemon_thread
from offcut.wire import tokens
from offcut.wire.ownership import read_own
from offcut.wire.tls import trusting

#: One message of the controller: a generation of ten thousand members is a tenth of this.
_LARGEST_MESSAGE = 16 << 20


class CredentialRefusedError(OffcutError):
    """The controller does not accept this agent's credential."""


class ControllerSocket(Protocol):
    """An open connection to the controller: messages in order, both ways, until it ends or breaks."""

    @property
    def host(self) -> str:
        """This node's address on its route to the controller."""
        ...

    async def send(self, text: str) -> None:
        """Send a message. Raises OSError where the connection has ended."""
        ...

    def __aiter__(self) -> AsyncIterator[str | bytes]:
        """Yield the controller's messages until the connection ends in good order. Raises OSError where it breaks."""
        ...


#: Opens a connection for the length of a block. Raises OSError, ValueError, KeyError, TimeoutError or OffcutError.
Dial = Callable[[], AbstractAsyncContextManager[ControllerSocket]]


class WebSocketDial:
    """`address_file` is read again at each attempt: a restarted controller listens elsewhere."""

    def __init__(self, address_file: Path, token_file: Path) -> None:
        self._address_file = address_file
        self._token_file = token_file

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[ControllerSocket]:
        told, token = await in_daemon_thread(self._look_up)
        try:
            async with connect(
                told["agents"],
                additional_headers={"Authorization": f"Bearer {token}"},
                ssl=trusting(told["certificate"]) if "certificate" in told else None,
                open_timeout=10,
                max_size=_LARGEST_MESSAGE,
                proxy=None,
            ) as socket:
                yield _WebSocket(socket)
        except InvalidStatus as error:
            raise CredentialRefusedError(f"The controller answered with status {error.response.status_code}.") from None

    def _look_up(self) -> tuple[dict[str, Any], str]:
        """Return where the controller is, and the token. Both files may be on a file system that hangs."""
        return json.loads(read_own(self._address_file)), tokens.read(self._token_file)


class _WebSocket:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.host: str = socket.local_address[0]

    async def send(self, text: str) -> None:
        await self._socket.send(text)

    def __aiter__(self) -> AsyncIterator[str | bytes]:
        return self._socket.__aiter__()
