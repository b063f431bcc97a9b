"""Simulated byte streams between two processes of one computer: asyncio's readers and writers at both ends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from offcut.testing.campaign.simulated_loop import Process, SimulatedLoop

#: The longest line that an end reads.
_LIMIT_BYTES = 16 << 20


class _Credentials:
    """What `getsockopt` says of the process at the other end."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def getsockopt(self, *_: Any) -> bytes:
        return struct.pack("3i", self._pid, 0, 0)


class PipeWriter:
    """One end for writing: an `asyncio.StreamWriter` as far as it is used."""

    def __init__(self, pipe: Pipe, end: int) -> None:
        self._pipe = pipe
        self._end = end

    def write(self, data: bytes) -> None:
        self._pipe.send(self._end, data)

    async def drain(self) -> None:
        """Return at once."""

    def is_closing(self) -> bool:
        return self._pipe.closed

    def close(self) -> None:
        self._pipe.close()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _Credentials(self._pipe.pids[1 - self._end]) if name == "socket" else default


class Pipe:
    """A connection between two processes; it ends with either of them. `delay_s` draws the time of one delivery."""

    def __init__(
        self, loop: SimulatedLoop, ends: tuple[Process, Process], pids: tuple[int, int], delay_s: Callable[[], float]
    ) -> None:
        self._loop = loop
        self._ends = ends
        self._delay_s = delay_s
        self._due_s = [0.0, 0.0]
        self.pids = pids
        self.closed = False
        self.readers = tuple(asyncio.StreamReader(_LIMIT_BYTES, loop) for _ in ends)
        self.writers = tuple(PipeWriter(self, end) for end in (0, 1))
        for process in ends:
            process.on_end.append(self.close)

    def send(self, end: int, data: bytes) -> None:
        """Deliver data from this end to the other, in order."""
        if not self.closed:
            self._later(1 - end, self._feed, 1 - end, data)

    def _later(self, end: int, call: Callable[..., None], *arguments: Any) -> None:
        at_s = max(self._due_s[end], self._loop.time() + self._delay_s())
        self._due_s[end] = at_s
        self._loop.call_at(at_s, call, *arguments, context=self._ends[end].context)

    def _feed(self, end: int, data: bytes) -> None:
        if not self.readers[end].at_eof():
            self.readers[end].feed_data(data)

    def close(self) -> None:
        """End the connection: each end reads what was sent, and then the end."""
        if not self.closed:
            self.closed = True
            for end in (0, 1):
                self._later(end, self.readers[end].feed_eof)
