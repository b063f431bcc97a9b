"""A simulated worker's connection to its agent: what `offcut.torch.membership.agent_link` does, without threads."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from offcut.membership.generation import Generation
from offcut.testing.campaign.pipes import PipeWriter
from offcut.wire import worker_messages
from offcut.wire.messages import NewGeneration
from offcut.wire.worker_env import worker_name


class WorkerLink:
    """Keeps the newest generation, and until when this worker must have left."""

    def __init__(self, worker: str, reader: asyncio.StreamReader, writer: PipeWriter, lost: Callable[[], None]) -> None:
        self.worker = worker
        self._reader = reader
        self._writer = writer
        #: Called when the agent is gone: this process ends with it.
        self._lost = lost
        self.newest: Generation | None = None
        self.aborting = -1
        self.leave_by_s: float | None = None
        self.node_wanted = False
        self._watchers: dict[int, Callable[[], None]] = {}
        self._numbers = 0
        self.on_leave: Callable[[float, bool], None] = lambda leave_by_s, node_wanted: None

    def send(self, message: worker_messages.FromWorker) -> None:
        self._writer.write(worker_messages.encode(message))

    @property
    def leaving(self) -> bool:
        return self.leave_by_s is not None

    def newer_than(self, generation: int) -> bool:
        return self.newest is not None and self.newest.generation > generation

    def aborted(self, generation: int) -> bool:
        return self.aborting > generation

    async def read(self) -> None:
        """Follow the agent's messages until it is gone."""
        while line := await self._reader.readline():
            self._receive(worker_messages.to_worker(line))
        self._lost()

    def _receive(self, message: worker_messages.ToWorker) -> None:
        if isinstance(message, NewGeneration):
            if message.abort:
                self.aborting = max(self.aborting, message.generation)
            if self.newest is None or message.generation > self.newest.generation:
                self.newest = Generation(
                    generation=message.generation,
                    workers=tuple(
                        worker_name(member.node, member.incarnation, rank)
                        for member in message.members
                        for rank in range(member.ranks)
                    ),
                    store=message.store,
                    job=message.job,
                    departing=bool(message.departing),
                    secret=message.secret,
                )
        else:
            self.leave_by_s = asyncio.get_running_loop().time() + message.limit_s
            self.on_leave(self.leave_by_s, message.node_wanted)
        for look in list(self._watchers.values()):
            look()

    def watch(self, look: Callable[[], None]) -> Callable[[], None]:
        """Call `look` after every message; what is returned ends that."""
        self._numbers += 1
        number = self._numbers
        self._watchers[number] = look
        return lambda: self._watchers.pop(number, None) and None

    async def wait_for(self, holds: Callable[[], bool], limit_s: float = math.inf) -> None:
        """Wait until this holds, for `limit_s` at most."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def look() -> None:
            if holds() and not done.done():
                done.set_result(None)

        end = self.watch(look)
        look()
        try:
            with suppress(TimeoutError):
                if math.isinf(limit_s):
                    await done
                else:
                    async with asyncio.timeout(max(0.0, limit_s)):
                        await done
        finally:
            end()
