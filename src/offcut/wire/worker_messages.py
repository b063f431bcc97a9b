"""What an agent, its launcher and its workers tell each other: one JSON object per line over a UNIX socket.

Worker to agent: `hello` (worker), `ready`, `beat` (generation, step, samples, loss, first; clock_s: the worker's
clock at the end of that step; own_s: for how long it has worked, waiting for others left out; script_s: for how long
the script has not come back to its session), `formed` (generation, step, fingerprint),
`broken` (generation, detail), `left` (step), `finished` (step), `note` (text).
Agent to worker: `generation` (generation, members, departing, store, secret, abort), `leave` (limit_s).
Agent to launcher: one `run` per connection. Launcher to agent: `started` (pid), then `exited` (code); the worker is
killed when the agent's end of the connection closes, so that no worker outlives its agent.

These stay on one machine and between processes of one account, so they are plain dicts; what goes over the network is
in `messages`.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

#: The longest text that a worker tells its agent: of a note, or of why a generation broke.
TEXT_LIMIT = 4096


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]} (cut: it had {len(text):,} characters)"


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Line:
    """A blocking line connection; `send` may be called from several threads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    def connect(cls, path: str) -> Line:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
        return cls(connection)

    def send(self, **message: Any) -> None:
        """OSError when the other side is gone. Texts longer than `TEXT_LIMIT` are cut."""
        data = encode({key: _cut(value) if isinstance(value, str) else value for key, value in message.items()})
        with self._lock:
            self._connection.sendall(data)

    def messages(self) -> Iterator[dict[str, Any]]:
        """Every message until the other side closes."""
        with self._connection.makefile("rb") as lines:
            for line in lines:
                yield json.loads(line)

    def close(self) -> None:
        self._connection.close()
