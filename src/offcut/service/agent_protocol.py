"""What the controller and one agent say to each other: the agent's hello first, then its reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from offcut.errors import ProtocolError
from offcut.service.agents import AgentConnection, Socket
from offcut.service.controller import Controller
from offcut.service.limits import JOURNALLED
from offcut.wire import messages
from offcut.wire.credentials import Identity

#: Most of the messages that agents send when nothing happens: they need not be parsed.
_HEARTBEAT = messages.Heartbeat().encoded.encode()


class AgentSide(Socket, Protocol):
    """An open connection to an agent."""

    @property
    def peer_closed(self) -> bool:
        """Whether the peer has said that it ends the connection."""
        ...


_Side = TypeVar("_Side", bound=AgentSide)


class AgentProtocol(Generic[_Side]):
    """`identity` is the agent that the credential is for: its hello must say the same. `greeted` is called then."""

    def __init__(
        self,
        controller: Controller,
        identity: Identity,
        socket: _Side,
        greeted: Callable[[_Side], None],
    ) -> None:
        self._controller = controller
        self._identity = identity
        self._socket = socket
        self._greeted = greeted
        self._connection: AgentConnection | None = None

    @property
    def peer(self) -> str:
        return f"{self._identity.node} {self._identity.pilot}"

    def receive(self, data: bytes) -> int:
        connection = self._connection
        if data == _HEARTBEAT and connection is not None:
            connection.heard_s = asyncio.get_running_loop().time()
            return 1
        message = messages.from_agent(data)
        if connection is None:
            self._begin(message)
            return JOURNALLED
        connection.heard_s = asyncio.get_running_loop().time()
        if isinstance(message, messages.Heartbeat) or not self._controller.agents.is_current(connection):
            return 1
        self._controller.agent_said(connection.node, message)
        return 1 if isinstance(message, messages.Progress | messages.Pace) else JOURNALLED

    def _begin(self, hello: messages.FromAgent) -> None:
        if not isinstance(hello, messages.Hello):
            raise ProtocolError(f"An agent began with '{hello.kind}' instead of 'hello'.")
        messages.check_version(hello.version)
        if (hello.node, hello.pilot) != (self._identity.node, self._identity.pilot):
            raise ProtocolError("The agent's credential is for another node or another hold on it.")
        if self._controller.cluster.pilot(hello.node) != hello.pilot:
            raise ProtocolError(f"The hold of this agent on {hello.node} is over.")
        self._connection = AgentConnection(hello.node, hello.pilot, self._socket)
        self._greeted(self._socket)
        self._controller.agent_connected(self._connection, hello)

    def refuse(self, reason: str) -> None:
        self._socket.send_text(messages.Refused(reason=reason, fatal=True).model_dump_json())

    def ended(self) -> None:
        if self._connection is not None:
            self._controller.agents.disconnected(self._connection, cut=not self._socket.peer_closed)
