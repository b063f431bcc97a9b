"""UNIX sockets: listening, asking whether a process listens, and which process is at the other end."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from offcut.errors import InputError

#: The kernel's limit on a UNIX socket's path, less its terminating zero and the dot under which `listen` makes it.
PATH_LIMIT = 106


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a UNIX socket, when it connected, and its user."""

    pid: int
    uid: int


def check_socket_path(path: Path) -> None:
    """Raise InputError if the path is too long for a UNIX socket."""
    if len(str(path)) > PATH_LIMIT:
        raise InputError(
            f"The path {path} is longer than the {PATH_LIMIT} bytes that a UNIX socket's may have.",
            next_step="Choose a shorter state directory with --state.",
        )


def listen(path: Path) -> socket.socket:
    """Return a listening UNIX socket that only its owner may connect to; a socket left at `path` is replaced.

    The file appears under its name only when the socket listens: a process that sees it can connect.
    """
    check_socket_path(path)
    unnamed = path.with_name(f".{path.name}")
    unnamed.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(unnamed))
    unnamed.chmod(0o600)
    listener.listen(128)
    unnamed.replace(path)
    return listener


async def answers(path: Path) -> bool:
    """Return whether a process listens on the UNIX socket."""
    import asyncio

    try:
        _, writer = await asyncio.open_unix_connection(str(path))
    except OSError:
        return False
    writer.close()
    return True


def peer_pid(connection: socket.socket) -> int:
    """Return the number of the process at the other end of a UNIX socket, as this process's PID namespace counts."""
    return peer_of(connection).pid


def peer_of(connection: socket.socket) -> Peer:
    """Return who is at the other end of a UNIX socket; the kernel says it, so that it cannot be pretended."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
    pid, uid, _ = struct.unpack("iII", credentials)
    return Peer(pid, uid)
