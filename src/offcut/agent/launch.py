"""Starts a worker's process, and makes sure that it ends.

Python scripts are forked from a template that has torch imported, trials of a sweep from one that has their script
loaded; anything else is started as a program of its own.
Either way the process leads a group of its own, dies when its agent dies, and takes the whole group with it.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from offcut.agent.agent_exit_watchdog import unblock
from offcut.agent.trial_scripts import TrialScripts
from offcut.agent.worker_process import Running, WorkerProcess, is_script
from offcut.errors import ClusterError
from offcut.process.fork_server import Forked
from offcut.process.parent_death import die_with_parent
from offcut.process.process_group import kill_group

#: How long a template that is still importing, or was just replaced, is waited for.
_TEMPLATE_PATIENCE_S = 60.0


class Launcher:
    """Starts workers.

    Args:
        template: the socket of a running template; None: every worker imports for itself.
        socket: the agent's socket; the sockets of loaded scripts lie beside it.
    """

    def __init__(self, template: Path | None, socket: Path) -> None:
        self._template = template
        self._trials = TrialScripts(self._start, socket)

    async def start(self, process: WorkerProcess) -> Running:
        """Start a worker's process. Raises ClusterError if that fails."""
        return await self._trials.start(process) or await self._start(process)

    async def _start(self, process: WorkerProcess) -> Running:
        if self._template is not None and is_script(process.command) and not process.setup:
            with suppress(OSError):
                return await Forked.start(
                    self._template,
                    process.command,
                    env=process.env,
                    workdir=process.workdir,
                    log=process.log,
                    umask=process.umask,
                    patience_s=_TEMPLATE_PATIENCE_S,
                )
        return await _Spawned.start(process)


#: Programs are started by one thread that lives as long as the agent, because a working directory on a file system that
#: hangs would delay the agent's loop, and because the kernel ends a process with the thread that started it.
_starter = ThreadPoolExecutor(1, thread_name_prefix="starter")


def _prepare(parent: int) -> None:
    unblock()
    die_with_parent(parent)


class _Spawned:
    """A program of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid

    @classmethod
    async def start(cls, process: WorkerProcess) -> _Spawned:
        starting = asyncio.get_running_loop().run_in_executor(_starter, cls._start, process)
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_kill_late)
            raise

    @classmethod
    def _start(cls, process: WorkerProcess) -> _Spawned:
        command = list(process.command)
        if is_script(process.command):
            command = [sys.executable, "-u", *command]
        if process.setup:
            # The shell sees the setup as the user wrote it; the command reaches it as quoted words only.
            command = ["/bin/bash", "-c", f"{process.setup}\nexec {shlex.join(command)}"]
        try:
            with process.log.open("ab") as log:
                started = subprocess.Popen(
                    command,
                    env=dict(process.env),
                    cwd=process.workdir,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    umask=-1 if process.umask is None else process.umask,
                    preexec_fn=partial(_prepare, os.getpid()),  # noqa: PLW1509
                )
        except OSError as error:
            raise ClusterError(
                f"{command[0]} could not be started in {process.workdir}: {error.strerror}.",
                next_step="Check the job's command and workdir.",
            ) from None
        return cls(started)

    async def wait(self) -> int:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        handle = os.pidfd_open(self.pid)
        try:
            loop.add_reader(handle, ended.set)
            await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        # Kill the group before its leader is reaped: until then no other process can have the leader's id.
        self.kill()
        return self._process.wait()

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        kill_group(self.pid)


def _kill_late(starting: asyncio.Future[_Spawned]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().kill()
