"""A worker's process: what is started, and how a process that runs is waited for and ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcess:
    """What to start: a command in a directory with an environment, its output to a file."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    workdir: str
    log: Path
    setup: str = ""
    #: None: the agent's own.
    umask: int | None = None
    #: The environment that all trials of a sweep have in common, in which their script may be loaded once for all of
    #: them. None: the process is not a trial.
    load_env: Mapping[str, str] | None = None


class Running(Protocol):
    """A started process."""

    pid: int

    async def wait(self) -> int:
        """Wait for the process. Return its exit code; minus the signal's number if one ended it."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to the process alone. Nothing happens if it has ended."""
        ...

    def kill(self) -> None:
        """Kill the process and everything that it started, at once. A second call does nothing."""
        ...


def is_script(command: tuple[str, ...]) -> bool:
    """Return whether the command is a Python script for the agent's own Python."""
    return command[0].endswith(".py")
