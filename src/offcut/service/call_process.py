"""A process that answers calls, one at a time, and is killed and replaced when it does not answer in time."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import structlog

from offcut.errors import ServiceError
from offcut.process.parent_death import die_with_parent

_log = structlog.get_logger()
_Result = TypeVar("_Result")

#: A new process has this long to import and to warm up: the first start of an installation compiles.
START_LIMIT_S = 180.0


class CallTimeoutError(ServiceError):
    """The process did not answer within the limit, and was killed."""


class CallDiedError(ServiceError):
    """The process died, or could not be started."""


def _serve(connection: Connection, parent: int, warm: Callable[[], None]) -> None:
    """Answer `(function, arguments)` with `(True, result)` or `(False, error)` until the pipe ends.

    Runs in the process.
    """
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warm()
    connection.send((True, None))
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        try:
            answer = True, function(*arguments)
        except BaseException as error:  # a user's file may raise anything, SystemExit too
            answer = False, _portable(error)
        connection.send(answer)


def _portable(error: BaseException) -> BaseException:
    """Return the error itself, or its text if it cannot be pickled and unpickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")


class _Child:
    """One process, and the thread that waits for its answers."""

    def __init__(self, warm: Callable[[], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        # Started here, in the thread that lives as long as the program: the child dies with the thread that forked it.
        self._process = context.Process(target=_serve, args=(theirs, os.getpid(), warm), daemon=True)
        try:
            self._process.start()
        finally:
            theirs.close()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="calls")
        self.pid = self._process.pid
        self.started = False

    async def exchange(self, call: Any, limit_s: float) -> Any:
        """Send a call (None: nothing), and return the answer. TimeoutError; EOFError or OSError if it has died."""
        waiting = asyncio.get_running_loop().run_in_executor(self._thread, self._blocking, call)
        async with asyncio.timeout(limit_s):
            return await waiting

    def _blocking(self, call: Any) -> Any:
        if call is not None:
            self._connection.send(call)
        return self._connection.recv()

    def kill(self) -> None:
        """Kill the process at once, whatever it does.

        The thread ends by itself, because its pipe has no other end any more.
        """
        with suppress(AttributeError, ValueError, ProcessLookupError):
            self._process.kill()
        self._thread.shutdown(wait=False)
        self._process.join(1.0)


class CallProcess:
    """Calls functions in a process of its own, which is killed if a call takes longer than its limit."""

    def __init__(self, warm: Callable[[], None]) -> None:
        """Keep a process that calls `warm` once before its first call. That time is in no call's limit."""
        self._warm = warm
        self._child: _Child | None = None
        self._turn = asyncio.Lock()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process's id; None while there is no process."""
        return None if self._child is None else self._child.pid

    async def start(self) -> None:
        """Start a warm process, if there is none. Raises CallDiedError, CallTimeoutError."""
        async with self._turn:
            await self._ready()

    async def call(self, function: Callable[..., _Result], *arguments: Any, limit_s: float) -> _Result:
        """Call `function(*arguments)` in the process and return the result.

        Raises what the function raised, CallTimeoutError or CallDiedError.
        """
        async with self._turn:
            child = await self._ready()
            good, answer = await self._exchange(child, (function, arguments), limit_s)
        if not good:
            raise answer
        result: _Result = answer
        return result

    async def _ready(self) -> _Child:
        if self._closed:
            raise CallDiedError("The process is not started again: the controller ends.")
        if self._child is None:
            try:
                self._child = _Child(self._warm)
            except OSError as error:
                raise CallDiedError(f"The process cannot be started: {error.strerror}.") from None
        if not self._child.started:
            await self._exchange(self._child, None, START_LIMIT_S)
            self._child.started = True
        return self._child

    async def _exchange(self, child: _Child, call: Any, limit_s: float) -> Any:
        try:
            return await child.exchange(call, limit_s)
        except TimeoutError:
            self._drop(child, "no answer in time")
            raise CallTimeoutError(f"It did not answer within {limit_s:g} s and was killed.") from None
        except (EOFError, OSError, pickle.UnpicklingError):
            self._drop(child, "gone")
            raise CallDiedError("Its process died.") from None
        except asyncio.CancelledError:
            # The next message from the process would be the answer to this call.
            self._drop(child, "cancelled")
            raise

    def _drop(self, child: _Child, why: str) -> None:
        _log.warning("process_replaced", pid=child.pid, why=why)
        child.kill()
        if self._child is child:
            self._child = None

    def close(self) -> None:
        """End the process, now and for good."""
        self._closed = True
        if self._child is not None:
            self._child.kill()
            self._child = None
