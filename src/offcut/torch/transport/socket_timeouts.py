"""Sets time-outs on this process's network connections, which gloo does not expose and the kernel lists.

A peer behind a network that drops everything closes no connection. By default the kernel retransmits to it for a
quarter of an hour, and waits for its data for ever.
"""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress

#: A connection breaks when the other end's kernel has not answered for this long. A busy or stopped process is fine.
SILENCE_S = 20


def own_sockets() -> list[socket.socket]:
    """Return all sockets of this process, as duplicates to be closed."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(socket.socket(fileno=os.dup(int(name))))
    return found


def inodes() -> frozenset[int]:
    """Return the inodes of this process's sockets."""
    found = set()
    for connection in own_sockets():
        with connection:
            found.add(os.fstat(connection.fileno()).st_ino)
    return frozenset(found)


def break_when_silent(known: frozenset[int]) -> None:
    """Let the TCP connections that are not among `known` break after SILENCE_S without an answer (tcp(7))."""
    for connection in own_sockets():
        with connection, suppress(OSError):
            tcp = connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM
            if not tcp or os.fstat(connection.fileno()).st_ino in known:
                continue
            # While a connection waits for data, the kernel sends probes from half of the time on.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, SILENCE_S // 2))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, SILENCE_S // 10))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * SILENCE_S)
