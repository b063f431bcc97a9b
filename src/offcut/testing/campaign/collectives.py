"""The collectives of one generation's members: all take part in each, in order, or some find that a peer is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from offcut.membership.generation import Generation
from offcut.testing.campaign.simulated_loop import Process, SimulatedLoop
from offcut.testing.campaign.trace import Trace

#: The share of members that have the result of a collective much later than the others.
_LATE = 0.03


class AbandonedError(Exception):
    """The generation cannot go on: a newer one has come, or a peer has gone."""


class GroupState:
    """What the members of one generation have sent each other. `random` draws how long messages take."""

    def __init__(self, loop: SimulatedLoop, trace: Trace, random: Random, generation: Generation) -> None:
        self.generation = generation
        self._loop = loop
        self._trace = trace
        self._random = random
        self._given: dict[int, dict[int, Any]] = {}
        self._waiting: dict[tuple[int, int], asyncio.Future[list[Any]]] = {}
        self.processes: dict[int, Process] = {}
        self._gone: set[int] = set()

    def join(self, rank: int, process: Process) -> None:
        """Add a member, which counts as gone when its process ends."""
        self.processes[rank] = process
        process.on_end.append(lambda: self.leave(rank))

    def give(self, rank: int, number: int, value: Any, future: asyncio.Future[list[Any]]) -> None:
        """Take part in collective `number`; the result comes into `future` when all have."""
        given = self._given.setdefault(number, {})
        given[rank] = value
        self._waiting[number, rank] = future
        if self._gone - given.keys():
            self._notice(number, rank)
        elif len(given) == self.generation.world:
            result = [given[each] for each in range(self.generation.world)]
            for each in range(self.generation.world):
                delay_s = self._random.uniform(0.0005, 0.01)
                if self._random.random() < _LATE:
                    delay_s = self._random.uniform(0.05, 1.0)
                    self._trace.fault("late", f"collective {number} to {each}: {delay_s:.3f} s")
                self._loop.call_later(delay_s, self._finish, number, each, result, context=self.processes[each].context)
            self._given = {later: values for later, values in self._given.items() if later > number - 2}

    def _finish(self, number: int, rank: int, result: list[Any]) -> None:
        future = self._waiting.pop((number, rank), None)
        if future is not None and not future.done():
            self._trace.event("collective", f"{self.generation.generation} {rank} {number} {result}")
            future.set_result(result)

    def leave(self, rank: int) -> None:
        """Note that the member is gone: others that wait for it notice. Of what all had begun, some have the result."""
        if rank in self._gone:
            return
        self._gone.add(rank)
        for number, waiting in sorted(self._waiting):
            if waiting != rank and self._random.random() < (1.0 if rank not in self._given.get(number, {}) else 0.5):
                self._notice(number, waiting)

    def _notice(self, number: int, rank: int) -> None:
        process = self.processes[rank]
        self._loop.call_later(self._random.uniform(0.001, 0.05), self._fail, number, rank, context=process.context)

    def _fail(self, number: int, rank: int) -> None:
        future = self._waiting.pop((number, rank), None)
        if future is not None and not future.done():
            self._trace.event("collective", f"{self.generation.generation} {rank} {number} broken")
            future.set_exception(AbandonedError("a peer has died"))


class Group:
    """One member's part in the collectives of a generation. `stale` says whether to stop waiting; `watch` is given what
    to call when that may have changed, and returns how to end that."""

    def __init__(
        self,
        state: GroupState,
        rank: int,
        stale: Callable[[], bool],
        watch: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        self.state = state
        self.membership = state.generation
        self.rank = rank
        self.stale = stale
        self._watch = watch
        self._number = 0

    @property
    def world(self) -> int:
        return self.membership.world

    async def gather(self, value: Any) -> list[Any]:
        """Return every member's value, by rank. Raises AbandonedError."""
        self._number += 1
        if self.world == 1:
            return [value]
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

        def look() -> None:
            if self.stale() and not future.done():
                future.set_exception(AbandonedError("a newer generation came"))

        end = self._watch(look)
        try:
            self.state.give(self.rank, self._number, value, future)
            look()
            return await future
        finally:
            end()

    def leave(self) -> None:
        self.state.leave(self.rank)
