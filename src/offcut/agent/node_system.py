"""What an agent does to its node: it starts workers, ends what they leave behind, and looks at logs and disks.

All of it is behind one interface, so that a simulation can run agents without processes and files.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from offcut.agent import disks, escaped_processes, launch_network
from offcut.agent.launch import Launcher
from offcut.agent.worker_process import Running, WorkerProcess
from offcut.process.daemon_thread import in_daemon_thread
from offcut.wire.worker_env import ENV_WORKERS_MARK

#: How much of a failed worker's log its report carries.
_TAIL_BYTES = 4000
#: How long logs, and processes that use a file system that hangs, are waited for.
_LOOK_LIMIT_S = 2.0
#: Outside of the range that systems take the ports of outgoing connections from.
_PORTS = range(20_000, 32_000)
_Result = TypeVar("_Result")


class NodeSystem(Protocol):
    """The node as its agent uses it. No method waits long for a file system that hangs."""

    async def start(self, process: WorkerProcess) -> Running:
        """Start a worker's process. Raises ClusterError if that fails."""
        ...

    async def make_directory(self, path: Path) -> None:
        """Make a directory, and those above it, unless it is there. Raises OSError."""
        ...

    async def kill_escaped(self, mark: str) -> None:
        """Kill processes of workers with this mark that escaped their process group."""
        ...

    async def last_output(self, log: Path) -> str:
        """Return the end of what a rank printed; empty where it cannot be read."""
        ...

    async def disk_trouble(self, directory: Path, said: str) -> str:
        """Return why the disk of `directory` made a worker fail that `said` this last; empty if it did not."""
        ...

    def reserve_port(self, host: str) -> AbstractContextManager[int]:
        """Keep a port for a rank until the block is left: no other process can listen there. Raises OSError."""
        ...

    async def gloo_env(self, env: Mapping[str, str], host: str) -> dict[str, str]:
        """Return what to add to the ranks' environment so that gloo finds a network."""
        ...


class LocalNode:
    """The computer on which the agent runs; `template` and `socket` are as for `Launcher`."""

    def __init__(self, template: Path | None, socket: Path) -> None:
        self._launcher = Launcher(template, socket)

    async def start(self, process: WorkerProcess) -> Running:
        """See `NodeSystem`."""
        return await self._launcher.start(process)

    async def make_directory(self, path: Path) -> None:
        """See `NodeSystem`."""
        # The directory is on a file system that all nodes share and that may hang: the agent does not wait for it.
        await in_daemon_thread(partial(path.mkdir, parents=True, exist_ok=True))

    async def kill_escaped(self, mark: str) -> None:
        """See `NodeSystem`."""
        await _within(_LOOK_LIMIT_S, escaped_processes.kill_marked, ENV_WORKERS_MARK, mark)

    async def last_output(self, log: Path) -> str:
        """See `NodeSystem`."""
        return await _within(_LOOK_LIMIT_S, _tail, log) or ""

    async def disk_trouble(self, directory: Path, said: str) -> str:
        """See `NodeSystem`."""
        return await _within(_LOOK_LIMIT_S, disks.trouble, directory, said) or ""

    @contextmanager
    def reserve_port(self, host: str) -> Iterator[int]:
        """See `NodeSystem`."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as holder:
            for port in random.sample(_PORTS, 100):
                with suppress(OSError):
                    holder.bind((host, port))
                    yield port
                    return
            raise OSError(f"no free port on {host} in {_PORTS.start}..{_PORTS.stop - 1}")

    async def gloo_env(self, env: Mapping[str, str], host: str) -> dict[str, str]:
        """See `NodeSystem`."""
        # In a thread: resolving a name may take seconds, and the agent does not wait for it.
        return await in_daemon_thread(launch_network.gloo_env, env, host)


async def _within(limit_s: float, function: Callable[..., _Result], *arguments: Any) -> _Result | None:
    """Return what the function returns; None if it takes longer than `limit_s`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            return await in_daemon_thread(function, *arguments)
    return None


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""
