"""The audit log: which person or program asked the controller to change something, when, and what became of it.

What the queue does is not in it: the journal has it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from offcut.model import events
from offcut.process import clocks
from offcut.process.unix_socket import Peer

_log = structlog.get_logger()

#: The newest entries have at most this many bytes, and those before them as many again.
_FULL_BYTES = 10_000_000
#: Requests by these methods change nothing.
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_LONGEST_PATH = 500
#: Where a peer is in the state of a connection, as ASGI has it.
PEER = "peer"

#: What the request that is being answered has asked for.
_asked: ContextVar[list[dict[str, Any]] | None] = ContextVar("asked", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One request that asked for a change, whether it was granted or not."""

    time_s: float
    #: How it came: `owner` (by the owner's socket), `page`, or `command`: what a command did by itself.
    role: str
    #: The process at the other end of the owner's socket, its user, and the user who logged in to start it, who stays
    #: the same through su and sudo; None where that is not known. For the page: its address.
    uid: int | None = None
    login_uid: int | None = None
    pid: int | None = None
    address: str | None = None
    method: str
    path: str
    #: Of the answer: 200 if it was done.
    status: int
    #: The events that it caused: `number` in the journal, `kind`, and the job, sweep or nodes that it is about.
    events: tuple[dict[str, Any], ...] = ()


class AuditLog:
    """The file `path`, JSON lines. When it is full, it takes the place of `older`."""

    def __init__(self, path: Path, older: Path) -> None:
        self._path = path
        self._older = older

    def write(self, entry: AuditEntry) -> None:
        """Append an entry. If the disk is full, the request is answered all the same, and the log has the entry."""
        line = json.dumps(asdict(entry))
        try:
            with open(self._path, "ab+", opener=_private) as file:
                file.write(b"\n" * _is_cut_off(file) + line.encode() + b"\n")
                full = file.tell() >= _FULL_BYTES
            if full:
                self._path.replace(self._older)
        except OSError as error:
            _log.error("audit_not_written", error=error.strerror, entry=line)

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield all entries, the oldest first. A line that a crash has cut off is left out."""
        for path in (self._older, self._path):
            if not path.exists():
                continue
            with path.open(errors="replace") as file:
                for line in file:
                    try:
                        entry = json.loads(line)
                    except ValueError:
                        continue
                    if isinstance(entry, dict):
                        yield entry


class Audited:
    """ASGI middleware that writes an entry for each request that may change something, before it is answered."""

    def __init__(self, app: ASGIApp, log: AuditLog, role: str) -> None:
        self._app = app
        self._log = log
        self._role = role

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _READING:
            await self._app(scope, receive, send)
            return
        asked: list[dict[str, Any]] = []
        token = _asked.set(asked)

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._log.write(self._entry(scope, message["status"], asked))
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            _asked.reset(token)

    def _entry(self, scope: Scope, status: int, asked: list[dict[str, Any]]) -> AuditEntry:
        peer = scope.get("state", {}).get(PEER)
        client = scope.get("client")
        return AuditEntry(
            time_s=round(clocks.wall_s(), 3),
            role=self._role,
            uid=peer.uid if isinstance(peer, Peer) else None,
            pid=peer.pid if isinstance(peer, Peer) else None,
            login_uid=_login_uid(peer.pid) if isinstance(peer, Peer) else None,
            address=client[0] if client else None,
            method=scope["method"],
            path=scope["path"][:_LONGEST_PATH],
            status=status,
            events=tuple(asked),
        )


def of_command(words: str) -> AuditEntry:
    """Return an entry for a command that changes something by itself, without a request to the controller.

    Args:
        words: the command, without anything secret.
    """
    pid = os.getpid()
    return AuditEntry(
        time_s=round(clocks.wall_s(), 3),
        role="command",
        uid=os.geteuid(),
        login_uid=_login_uid(pid),
        pid=pid,
        method="",
        path=words,
        status=200,
    )


def note_event(number: int, event: events.Event) -> None:
    """Note an event that the request which is being answered has caused; without a request this does nothing."""
    asked = _asked.get()
    if asked is not None:
        asked.append({"number": number, "kind": event.kind, "subject": _subject(event)})


def _subject(event: Any) -> str:
    """Return the job, sweep or nodes that the event is about; empty: the controller as a whole."""
    of = getattr(event, "job", None) or getattr(event, "sweep", None)
    if of is not None:
        return of if isinstance(of, str) else str(of.id)
    many = getattr(event, "nodes", ()) or getattr(event, "jobs", ())
    return ", ".join(many)[:_LONGEST_PATH]


def _login_uid(pid: int) -> int | None:
    """Return the user who logged in to start the process. None: not known, or started without a login."""
    try:
        uid = int(Path(f"/proc/{pid}/loginuid").read_text())
    except (OSError, ValueError):
        return None
    return None if uid == 0xFFFFFFFF else uid


def _is_cut_off(file: IO[bytes]) -> bool:
    """Return whether a crash has cut off the last line."""
    if file.seek(0, os.SEEK_END) == 0:
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
