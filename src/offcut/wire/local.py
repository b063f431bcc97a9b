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

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from offcut.errors import InputError

#: The kernel's limit on a UNIX socket's path, less its terminating zero and the dot under which `listen` makes it.
PATH_LIMIT = 106

#: The longest text that a worker tells its agent: of a note, or of why a generation broke.
TEXT_LIMIT = 4096
#: A line of the local cluster's daemon may name every node, or tell of every reclaim that there was.
LINE_BYTES = 64 << 20

#: The environment of an agent: what it adds to that of its workers, as JSON.
ENV_WORKER_ENV = "OFFCUT_WORKER_ENV"
#: The environment of a worker: where its agent listens, who it is, and where its job keeps its files.
ENV_AGENT = "OFFCUT_AGENT"
ENV_WORKER = "OFFCUT_WORKER"
ENV_JOB = "OFFCUT_JOB"
ENV_JOB_DIR = "OFFCUT_JOB_DIR"
#: The mark of one job's workers on one node, from start to exit: whatever they started carries it too.
ENV_CREW = "OFFCUT_CREW"
ENV_GOAL = "OFFCUT_GOAL_SAMPLES"
ENV_CHECKPOINT_AGE = "OFFCUT_CHECKPOINT_AGE_S"
ENV_RECORDS = "OFFCUT_STEP_RECORDS"
#: torch asks for huge pages where the kernel gives them on request: a joiner has its state some 4 times as quickly, for
#: most of the time goes into touching memory for the first time. Read at a process's first large allocation.
HUGE_PAGES = ("THP_MEM_ALLOC_ENABLE", "1")
#: The plan file of a pipeline job.
ENV_PLANS = "OFFCUT_PLANS"


def worker_name(node: str, incarnation: int, local_rank: int) -> str:
    """The name of one rank's process, unique over the life of a controller."""
    return f"{node}#{incarnation}:{local_rank}"


def check_socket_path(path: Path) -> None:
    """InputError if the kernel could not bind a socket there."""
    if len(str(path)) > PATH_LIMIT:
        raise InputError(
            f"The path {path} is longer than the {PATH_LIMIT} bytes that a UNIX socket's may have.",
            next_step="Choose a shorter state directory with --state.",
        )


def listen(path: Path) -> socket.socket:
    """A listening UNIX socket for its owner alone, in place of a stale one.

    It appears under its name only when it answers: whoever sees it may connect.
    """
    check_socket_path(path)
    unborn = path.with_name(f".{path.name}")
    unborn.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(unborn))
    unborn.chmod(0o600)
    listener.listen(128)
    unborn.replace(path)
    return listener


async def answers(path: Path) -> bool:
    """Whether somebody listens on a UNIX socket."""
    try:
        _, writer = await asyncio.open_unix_connection(str(path))
    except OSError:
        return False
    writer.close()
    return True


def peer_pid(connection: socket.socket) -> int:
    """The process at the other end of a UNIX socket, by the number that it has here (a container gives it another)."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


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
