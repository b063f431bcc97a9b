"""The Cluster that talks to the daemon of virtual nodes."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from offcut.cluster.base import ClusterEvent
from offcut.cluster.local.site import LINE_LIMIT_BYTES
from offcut.errors import ClusterError, InputError
from offcut.model.events import ClaimRefused, NodesChanged, Offer
from offcut.process import clocks
from offcut.process.daemon_thread import in_daemon_thread
from offcut.process.json_lines import encode_line
from offcut.process.unix_socket import answers
from offcut.wire.credentials import Credentials

#: The daemon takes its nodes down, each within its grace, when it is told to stop.
_CLOSE_PATIENCE_S = 15.0
#: A message lists at most this many unknown names.
_MOST_NAMED = 5

#: Opens a connection to the daemon. Raises OSError.
OpenConnection = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class LocalCluster:
    """Virtual nodes; `address_file` and `credentials` tell their agents how to reach the controller."""

    def __init__(
        self,
        directory: Path,
        address_file: Path,
        credentials: Credentials,
        *,
        open_connection: OpenConnection | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        """`open_connection` connects to the daemon, if not the socket in `directory` does; `new_id` returns what makes
        the name of a new pilot different from all others."""
        self._open_connection = open_connection or self._open_socket
        self._new_id = new_id
        self._directory = directory
        self._address_file = address_file
        self._credentials = credentials
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        #: By node.
        self._pilots: dict[str, str] = {}
        #: By node: set once the claim that is under way has been sent.
        self._claiming: dict[str, asyncio.Event] = {}
        self._closing = False

    async def connect(self) -> None:
        """Connect to the daemon. ClusterError if it does not answer."""
        try:
            self._reader, self._writer = await self._open_connection()
        except OSError as error:
            raise ClusterError(f"The local cluster in {self._directory} does not answer: {error.strerror}.") from None
        self._send(kind="watch")
        self._pilots = dict((await self._answer(self._reader))["pilots"])
        self._credentials.keep_only(self._pilots.values())

    async def _open_socket(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self._directory / "cluster.sock"), limit=LINE_LIMIT_BYTES)

    def begin(self) -> None:
        """Start the clock of the schedule. Once it runs, this does nothing."""
        self._send(kind="begin")

    async def observe(self) -> AsyncIterator[ClusterEvent]:
        assert self._reader is not None
        while line := await _line_or_end(self._reader):
            message = json.loads(line)
            if message["kind"] == "nodes":
                for node, pilot in (*message.get("refused", {}).items(), *message.get("lost", {}).items()):
                    self._forget(node, pilot)
                for event in _events(message):
                    yield event
        if not self._closing:
            raise ClusterError(
                "The daemon of the local cluster died, and its nodes' agents with it.",
                next_step=f"Its log is {self._directory / 'cluster.log'}. Start the controller again: jobs continue.",
            )

    async def claim(self, nodes: Sequence[str], until_s: float | None) -> None:
        claims = {}
        for node in nodes:
            pilot = f"{node}-{self._new_id()}"
            # If we hold the node already, the claim is refused, and the node stays held.
            self._pilots.setdefault(node, pilot)
            claims[node] = pilot
        claimed = asyncio.Event()
        self._claiming |= dict.fromkeys(claims, claimed)
        try:
            # In a thread: the file system that agents share may hang.
            await in_daemon_thread(self._issue, claims)
            files = {"address_file": str(self._address_file), "credentials": str(self._credentials.directory)}
            self._send(kind="claim", claims=claims, controller=files)
        finally:
            claimed.set()
            for node in claims:
                if self._claiming.get(node) is claimed:
                    del self._claiming[node]

    def _issue(self, claims: dict[str, str]) -> None:
        for node, pilot in claims.items():
            self._credentials.issue(node, pilot)

    async def release(self, nodes: Sequence[str]) -> None:
        later = {node: self._claiming[node] for node in nodes if node in self._claiming}
        if at_once := [node for node in nodes if node not in later]:
            self._send(kind="release", nodes=at_once)
        for node, claimed in later.items():
            await claimed.wait()
            self._send(kind="release", nodes=[node])

    async def claimed(self) -> frozenset[str]:
        return frozenset(self._pilots)

    def pilot(self, node: str) -> str | None:
        return self._pilots.get(node)

    async def want(self, nodes: Sequence[str]) -> None:
        """Play the queue: it wants these nodes. InputError for a node that does not exist."""
        await self._ask_about("want", nodes)

    async def offer(self, nodes: Sequence[str]) -> None:
        """Play the queue: leave these nodes idle. InputError for a node that does not exist."""
        await self._ask_about("offer", nodes)

    def agent_connected(self, node: str) -> None:
        """Ignore it: nothing here depends on it."""

    def set_demand(self, nodes: int) -> None:
        """Ignore it: no other controller uses these nodes."""

    async def forgive(self, nodes: Sequence[str]) -> None:
        """Ignore it: no node is left alone here."""

    def describe(self) -> dict[str, Any]:
        return {"kind": "local"}

    async def statistics(self) -> dict[str, Any]:
        """Return `idle_node_s` offered so far, and every release: node, wanted_s, took_s, killed."""
        return await self._ask(kind="statistics")

    async def close(self) -> None:
        if self._writer is None:
            return
        self._closing = True
        with suppress(ClusterError):
            self._send(kind="stop")
        self._writer.close()
        give_up_s = clocks.steady_s() + _CLOSE_PATIENCE_S
        while await answers(self._directory / "cluster.sock"):
            if clocks.steady_s() > give_up_s:
                raise ClusterError(
                    f"The local cluster in {self._directory} did not end within {_CLOSE_PATIENCE_S:g} s.",
                    next_step="End its processes by hand: they name that directory.",
                )
            await asyncio.sleep(0.02)

    def _forget(self, node: str, pilot: str) -> None:
        self._credentials.withdraw_later(pilot)
        if self._pilots.get(node) == pilot:
            del self._pilots[node]

    def _send(self, **command: Any) -> None:
        if self._writer is None or self._writer.is_closing():
            raise ClusterError("The local cluster has ended.")
        self._writer.write(encode_line(command))

    async def _ask(self, **command: Any) -> dict[str, Any]:
        try:
            reader, writer = await self._open_connection()
        except OSError as error:
            raise ClusterError(f"The local cluster does not answer: {error.strerror}.") from None
        try:
            writer.write(encode_line(command))
            return await self._answer(reader)
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        line = await _line_or_end(reader)
        if not line:
            raise ClusterError(f"The local cluster in {self._directory} does not answer: its daemon ended.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def _ask_about(self, kind: str, nodes: Sequence[str]) -> None:
        answer = await self._ask(kind=kind, nodes=list(nodes))
        if answer["unknown"]:
            unknown = answer["unknown"]
            more = f", and {len(unknown) - _MOST_NAMED} more are unknown" if len(unknown) > _MOST_NAMED else ""
            raise InputError(
                f"No node is called {', '.join(unknown[:_MOST_NAMED])}{more}.", next_step="See: offcut status"
            )


async def _line_or_end(reader: asyncio.StreamReader) -> bytes:
    """Return the next line; empty when the daemon has ended, whether it was stopped or died."""
    try:
        return await reader.readline()
    except OSError:
        return b""


def _events(message: dict[str, Any]) -> list[ClusterEvent]:
    events: list[ClusterEvent] = []
    time_s = message["time_s"]
    if message.get("refused"):
        events.append(ClaimRefused(time_s=time_s, nodes=tuple(message["refused"]), reason="the node is not idle"))
    offered = tuple(Offer(name) for name in message.get("idle", ()))
    wanted, lost = tuple(message.get("wanted", ())), tuple(message.get("lost", ()))
    if offered or wanted or lost:
        events.append(NodesChanged(time_s=time_s, offered=offered, wanted=wanted, lost=lost))
    return events
