"""UNIX sockets: listening, asking whether a process listens, and which process is at the other end."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from offcut.errors import InputError

#: The kernel's limit on a UNIX socket's path, less its terminating zero and the dot under which `listen` makes it.
PATH_LIMIT = 106


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
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid
