"""Attacks of another user of the machine against a controller's port, for `strangers.stranger`.

They answer by `answer`, and use nothing that is not imported here: as another user they may not be able to read it.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import ssl
import struct
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from strangers import stranger


def outcome(attack: Any, *given: Any) -> Any:
    """Return the result of the attack."""
    with stranger(attack, *given) as connection:
        return connection.recv()


def submission(marker: Path) -> bytes:
    """Return a request that runs a command as the user who carries it out."""
    job = {"name": "evil", "command": ["/bin/sh", "-c", f"id > {marker}"], "mode": "restart", "sizes": "1"}
    body = json.dumps(job).encode()
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _about_to_reset(port: int) -> socket.socket:
    """Return a connection that ends with a reset, so that its sender's address cannot be looked up afterwards."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return connection


def submit_and_reset(answer: Connection, port: int, request: bytes, times: int) -> None:
    for _ in range(times):
        with _about_to_reset(port) as connection:
            connection.sendall(request)
    answer.send(os.geteuid())


def submit_and_reset_in_the_handshake(answer: Connection, port: int, request: bytes, times: int) -> None:
    """Do the same through TLS: send the end of the handshake and the request in one flight, then reset."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for _ in range(times):
        with _about_to_reset(port) as connection:
            received, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(received, to_send)
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    if data := to_send.read():
                        connection.sendall(data)
                    received.write(connection.recv(65536))
            tls.write(request)
            connection.sendall(to_send.read())
    answer.send(os.geteuid())


def hold_idle(answer: Connection, port: int, count: int) -> None:
    """Open connections with half a request each and report how many; when told, report how many are left."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held = []
    for _ in range(count):
        with suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", port), timeout=5)
            connection.send(b"POST /v1/jobs HTTP/1.1\r\n")
            held.append(connection)
    answer.send(len(held))
    answer.recv()
    answer.send(sum(_is_open(connection) for connection in held))


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def send_large(answer: Connection, port: int, mebibytes: int) -> None:
    """Send a request without end. Report how much of it was accepted."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (mebibytes << 20))
        sent = 0
        with suppress(OSError):
            while sent < mebibytes:
                connection.sendall(b"a" * (1 << 20))
                sent += 1
    answer.send(sent)


def look_at(answer: Connection, paths: list[str]) -> None:
    """Return which of these files and sockets can be opened."""
    opened = []
    for path in paths:
        with suppress(OSError):
            Path(path).read_bytes()
            opened.append(path)
        with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            opened.append(path)
    answer.send(opened)
