"""One worker process of a job on this node, and its connection to the agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

from offcut.agent.worker_process import Running
from offcut.wire import worker_messages


class Rank:
    """One worker process, and its connection to the agent."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self.running: Running | None = None
        self.line: asyncio.StreamWriter | None = None
        #: The process at the other end of the connection. It is not the one that was started if that is a shell.
        self.pid = 0
        self.last_beat_s = 0.0
        self.ready = False
        self.left = False
        self.finished = False
        self.frozen = False
        self.hung = False
        #: The end of what it printed, read when it has ended badly.
        self.last_output = ""
        #: The progress since which its seconds per step are measured, and the last measurement.
        self.pace_from: worker_messages.StepProgress | None = None
        self.own_step_s: float | None = None

    def send(self, message: worker_messages.ToWorker) -> None:
        """Send it to the worker; do nothing where the worker is not connected."""
        if self.line is not None and not self.line.is_closing():
            self.line.write(worker_messages.encode(message))
