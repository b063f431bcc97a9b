"""Forks processes from one that has done its imports: milliseconds instead of seconds of processor time each.

A server listens on a UNIX socket. One connection is one process: a request comes in, `started` and later `exited` go
out, and when the other end closes, the process and everything that it started are killed: it cannot outlive the
process that asked for it. When the server dies, the kernel kills its processes.

The server stays single-threaded, so that a fork is a whole copy, and runs nothing of a request itself.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import gc
import io
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from offcut.process.json_lines import encode_line
from offcut.process.parent_death import die_with_parent
from offcut.process.process_group import kill_group
from offcut.process.unix_socket import listen

#: An environment may be large; this is larger than the kernel would take.
_REQUEST_LIMIT_BYTES = 16 << 20
#: Answers have a few bytes: a client that has no room for them does not read at all.
_ANSWER_LIMIT_S = 1.0


# -- the server -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Child:
    pid: int
    pidfd: int
    connection: socket.socket


class ForkServer:
    """Forks one child per connection; `run` is called in the child with the request's argv and returns its exit code.

    A request is `{"argv": [...], "env": {...}, "workdir": "...", "log": "...", "umask": None}`.
    """

    def __init__(self, path: Path, run: Callable[[list[str]], int]) -> None:
        self._run = run
        self._selector = selectors.DefaultSelector()
        self._server = listen(path)
        self._selector.register(self._server, selectors.EVENT_READ, self._accept)

    def serve(self) -> NoReturn:
        gc.collect()
        gc.freeze()
        while True:
            for key, _ in self._selector.select():
                # An earlier event of this round may have closed it.
                if self._selector.get_map().get(key.fd) is key:
                    key.data()

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(0.1)  # no descriptors left: some are freed when a process ends
            return
        connection.setblocking(False)
        received = bytearray()
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._receive(connection, received))

    def _receive(self, connection: socket.socket, received: bytearray) -> None:
        """Read what has arrived of a request. An incomplete one does not delay others."""
        try:
            data = connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        received += data
        if data and not received.endswith(b"\n") and len(received) < _REQUEST_LIMIT_BYTES:
            return
        self._selector.unregister(connection)
        try:
            request = json.loads(received) if received.endswith(b"\n") else None
        except ValueError:
            request = None
        if request is None:
            connection.close()
            return
        connection.setblocking(True)
        connection.settimeout(_ANSWER_LIMIT_S)
        self._fork(request, connection)

    def _fork(self, request: dict[str, Any], connection: socket.socket) -> None:
        try:
            parent, pid = os.getpid(), os.fork()
        except OSError:
            connection.close()  # no more processes: the closed connection says so, and the client may ask again
            return
        if pid == 0:
            self._become(request, parent, connection)
        child = _Child(pid, os.pidfd_open(pid), connection)
        self._selector.register(child.pidfd, selectors.EVENT_READ, lambda: self._exited(child))
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._dropped(child))
        with suppress(OSError):
            connection.sendall(encode_line({"kind": "started", "pid": pid}))

    def _dropped(self, child: _Child) -> None:
        """Kill the process: its client closed the connection, or has died."""
        with suppress(OSError):
            if child.connection.recv(4096):
                return
        self._selector.unregister(child.connection)
        kill_group(child.pid)

    def _exited(self, child: _Child) -> None:
        # Kill the group before its leader is reaped: until then no other process can have the leader's id.
        kill_group(child.pid)
        _, status = os.waitpid(child.pid, 0)
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        with suppress(KeyError):
            self._selector.unregister(child.connection)
        with suppress(OSError):
            child.connection.sendall(encode_line({"kind": "exited", "code": os.waitstatus_to_exitcode(status)}))
        child.connection.close()

    def _become(self, request: dict[str, Any], parent: int, connection: socket.socket) -> NoReturn:
        """Do what was asked, and end the process. Runs in the forked child."""
        code = 1
        try:
            os.setsid()
            die_with_parent(parent)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            for key in list(self._selector.get_map().values()):
                os.close(key.fd)
            self._selector.close()
            connection.close()
            _redirect(request["log"])
            os.environ.clear()
            os.environ.update(request["env"])
            if request.get("umask") is not None:
                os.umask(request["umask"])
            os.chdir(request["workdir"])
            code = self._run(request["argv"])
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(Exception):
                atexit._run_exitfuncs()
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            # Not sys.exit: a library's thread that hangs would keep the interpreter from ending.
            os._exit(code)


def _redirect(log: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(nothing)
    os.close(output)
    sys.stdout = io.TextIOWrapper(_Log(1, "w", closefd=False), line_buffering=True)
    sys.stderr = io.TextIOWrapper(_Log(2, "w", closefd=False), line_buffering=True)


class _Log(io.FileIO):
    """The output of a process. Lines for which there is no room are lost, so that output never ends a script."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return memoryview(data).nbytes


# -- the client -------------------------------------------------------------------------------------------------------


class Forked:
    """A process that a fork server made for this client. It ends with the connection."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self._reader = reader
        self._writer = writer

    @classmethod
    async def start(
        cls,
        server: Path,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        workdir: str,
        log: Path,
        umask: int | None = None,
        patience_s: float,
    ) -> Forked:
        """Ask `server` for a process; wait up to `patience_s` for a server that is still importing.

        Raises OSError if it does not answer.
        """
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + patience_s
        while True:
            try:
                reader, writer = await asyncio.open_unix_connection(str(server))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if loop.time() > give_up_s:
                    raise
                await asyncio.sleep(0.02)
        request = {"argv": list(argv), "env": dict(env), "workdir": workdir, "log": str(log), "umask": umask}
        try:
            writer.write(encode_line(request))
            await writer.drain()
            line = await reader.readline()
            if not line:
                raise ConnectionResetError("the fork server has ended")
        except BaseException:
            writer.close()  # also if the caller no longer wants the process: the server kills it
            raise
        return cls(json.loads(line)["pid"], reader, writer)

    async def wait(self) -> int:
        """Wait for the process. Return its exit code; minus the signal's number if one ended it."""
        try:
            line = await self._reader.readline()
        except OSError:
            line = b""
        self._writer.close()
        # No answer: the server died, and the kernel killed its processes.
        return int(json.loads(line)["code"]) if line else -signal.SIGKILL

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process and everything that it started, at once. A second call does nothing."""
        kill_group(self.pid)
