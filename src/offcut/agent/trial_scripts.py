"""Fork servers for scripts that define `trial(params)`: a script is loaded once, and each trial is a fork.

A forked process has a fresh copy of everything: environment, working directory, log, memory. So a trial cannot see what
an earlier one left behind, and a crash ends its own trial alone.
"""

from __future__ import annotations

import ast
import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import structlog

import offcut
from offcut.agent.worker_process import Running, WorkerProcess, is_script
from offcut.errors import ClusterError
from offcut.process.daemon_thread import in_daemon_thread
from offcut.process.fork_server import Forked

#: What loads a script and calls its `trial`: in one process, or with `--serve SOCKET` in a fork for each trial.
PROGRAM = str(Path(offcut.__file__).parent / "torch" / "programs" / "run_trial.py")
#: How long a script may take to load.
_LOAD_LIMIT_S = 600.0
#: The load's computations run in one thread, because only a process with one thread may fork.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_log = structlog.get_logger()


def defines_trial(source: str) -> bool:
    """Return whether a script defines `trial(params)` and does not call it where it is loaded.

    Calls below `if __name__ == "__main__":` do not run when it is loaded.
    """
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return False
    found = [each for each in body if isinstance(each, ast.FunctionDef) and each.name == "trial"]
    if not found:
        return False
    takes = found[-1].args
    positional = len(takes.posonlyargs) + len(takes.args)
    if not positional or positional - len(takes.defaults) > 1 or None in takes.kw_defaults:
        return False
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return not any(_calls_trial(each) for each in body if not isinstance(each, definitions) and not _is_main(each))


def _is_main(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)


def _calls_trial(statement: ast.stmt) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "trial"
        for node in ast.walk(statement)
    )


@dataclass(frozen=True, slots=True)
class _Key:
    """What a loaded script depends on. A script that is changed is loaded again."""

    script: str
    modified_ns: int
    size: int
    workdir: str
    umask: int | None
    env: tuple[tuple[str, str], ...]


def _find_trial(process: WorkerProcess, env: Mapping[str, str]) -> _Key | None:
    """Return the key of a process's script; None if that defines no `trial(params)`, or cannot be read."""
    script = Path(process.workdir, process.command[0])
    try:
        told = script.stat()
        source = script.read_text()
    except (OSError, UnicodeDecodeError):
        return None
    if not defines_trial(source):
        return None
    variables = tuple(sorted(env.items()))
    return _Key(str(script), told.st_mtime_ns, told.st_size, process.workdir, process.umask, variables)


class _Server:
    """A fork server that has loaded a script, or is loading it."""

    def __init__(self, key: _Key, socket: Path, running: Running) -> None:
        self.key = key
        self._socket = socket
        self._running = running
        self.exit = asyncio.create_task(running.wait())
        self.has_forked = False

    async def fork(self, process: WorkerProcess) -> Running:
        """Start a trial. Raises OSError if the server has ended."""
        forking = asyncio.create_task(
            Forked.start(
                self._socket,
                process.command,
                env=process.env,
                workdir=process.workdir,
                log=process.log,
                umask=process.umask,
                patience_s=_LOAD_LIMIT_S,
            )
        )
        try:
            await asyncio.wait((forking, self.exit), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if not forking.cancel() and forking.exception() is None:
                forking.result().kill()
            raise
        if forking.cancel():
            raise ConnectionResetError("the server has ended")
        forked = forking.result()
        self.has_forked = True
        return forked

    async def end(self) -> None:
        """Kill the server, and with it all of its trials."""
        if not self.exit.done():  # else another process may have its number
            self._running.kill()
        await self.exit
        self._socket.unlink(missing_ok=True)


class TrialScripts:
    """Starts trials of scripts that define `trial(params)`. One script is loaded at a time.

    Args:
        start: starts a process on this node.
        socket: the agent's socket; fork servers listen beside it.
    """

    def __init__(self, start: Callable[[WorkerProcess], Awaitable[Running]], socket: Path) -> None:
        self._start_process = start
        self._socket = socket
        self._numbers = itertools.count(1)
        self._server: _Server | None = None
        self._lock = asyncio.Lock()
        #: Scripts whose server has ended before its first trial.
        self._refused: set[_Key] = set()

    async def start(self, process: WorkerProcess) -> Running | None:
        """Start a trial; return None if the process is not a trial, or its script defines no `trial(params)`.

        The loaded script of another sweep is given up.

        Raises:
            ClusterError: the trial could not be started.
        """
        key = None
        if process.load_env is not None and is_script(process.command):
            key = await in_daemon_thread(partial(_find_trial, process, process.load_env))
        async with self._lock:
            if self._server is not None and (self._server.key != key or self._server.exit.done()):
                await self._server.end()
                self._server = None
            if key is None:
                return None
            if self._server is None and key not in self._refused and not process.setup:
                self._server = await self._load(key, process)
            server = self._server
        if server is not None:
            with suppress(OSError):
                return await server.fork(process)
            if server.exit.done() and not server.has_forked:
                self._refused.add(key)
            _log.warning("trial_script_not_served", script=key.script)
        # The script is loaded for this trial alone. If it cannot be loaded at all, the trial's own log says why.
        return await self._start_process(replace(process, command=(PROGRAM, *process.command)))

    async def _load(self, key: _Key, process: WorkerProcess) -> _Server | None:
        socket = self._socket.with_name(f"{self._socket.stem}-{next(self._numbers)}.sock")
        socket.unlink(missing_ok=True)  # an earlier agent's
        env = {**dict(key.env), **dict.fromkeys(_ONE_THREAD, "1")}
        try:
            running = await self._start_process(
                WorkerProcess(
                    command=(PROGRAM, "--serve", str(socket), key.script),
                    env=env,
                    workdir=process.workdir,
                    log=process.log.with_suffix(".load.log"),
                    umask=process.umask,
                )
            )
        except (ClusterError, OSError):
            return None
        return _Server(key, socket, running)
