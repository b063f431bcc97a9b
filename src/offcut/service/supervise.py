"""The controller's background tasks: restarted when they fail, and shown in `offcut status`.

A task that everything depends on is not restarted: its failure ends the controller, with a sentence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog

from offcut.errors import OffcutError, ServiceError
from offcut.process import clocks

_log = structlog.get_logger()

#: The wait before the first restart; each further one is twice as long, up to the longest.
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
#: A task that has run for this long since its last failure is well again: its next restart comes after the first wait.
WELL_AFTER_S = 60.0

Body = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class TaskHealth:
    """The state of one background task."""

    name: str
    #: `running`, or `failed`: it waits for its restart.
    state: str = "running"
    failures: int = 0
    last_error: str = ""
    last_failure_s: float | None = None
    started_s: float = 0.0

    def shown(self, now_s: float) -> dict[str, Any]:
        """Return the task as `offcut status` shows it; `well` is false from a failure until it has run for a minute."""
        return {
            "name": self.name,
            "state": self.state,
            "well": self.last_failure_s is None or (self.state == "running" and now_s - self.started_s > WELL_AFTER_S),
            "failures": self.failures,
            "last_error": self.last_error,
            "last_failure_s": self.last_failure_s,
        }


class Tasks:
    """All background tasks of one controller. `fatal` is done when a task has failed that everything depends on."""

    def __init__(self) -> None:
        self.fatal: asyncio.Future[OffcutError] = asyncio.get_running_loop().create_future()
        #: The controller ends: the end of a task is not a failure any more.
        self.closing = False
        self._health: dict[str, TaskHealth] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def keep(self, name: str, body: Body) -> None:
        """Run `body()` until `close`, and again with growing waits whenever it fails or returns."""
        health = self._health[name] = TaskHealth(name)
        self._start(self._keep(health, body))

    def need(self, name: str, body: Body) -> None:
        """Run `body()`; if it fails or returns before `close`, nothing can go on: `fatal` says why."""
        health = self._health[name] = TaskHealth(name)
        self._start(self._need(health, body))

    def once(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run `coroutine` to its end; a failure is logged."""
        self._start(self._once(name, coroutine))

    def shown(self) -> list[dict[str, Any]]:
        now_s = clocks.steady_s()
        return [health.shown(now_s) for health in self._health.values()]

    async def close(self) -> None:
        """Cancel all of them, and wait a moment for them to end."""
        self.closing = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep(self, health: TaskHealth, body: Body) -> None:
        wait_s = FIRST_WAIT_S
        while True:
            health.state, health.started_s = "running", clocks.steady_s()
            try:
                await body()
                _note_failure(health, "it ended")
            except Exception as error:
                _note_failure(health, _sentence(error))
            if clocks.steady_s() - health.started_s > WELL_AFTER_S:
                wait_s = FIRST_WAIT_S
            await asyncio.sleep(wait_s)
            wait_s = min(LONGEST_WAIT_S, 2 * wait_s)

    async def _need(self, health: TaskHealth, body: Body) -> None:
        health.started_s = clocks.steady_s()
        try:
            await body()
            error: OffcutError = ServiceError(f"The controller cannot go on: its task '{health.name}' ended.")
        except OffcutError as raised:
            error = raised
        except Exception as raised:
            error = ServiceError(f"The controller cannot go on: its task '{health.name}' failed: {_sentence(raised)}.")
        if self.closing:
            return
        _note_failure(health, str(error))
        if not self.fatal.done():
            self.fatal.set_result(error)

    @staticmethod
    async def _once(name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except Exception as error:
            _log.error("task_failed", task=name, error=_sentence(error))


def _note_failure(health: TaskHealth, error: str) -> None:
    health.state = "failed"
    health.failures += 1
    health.last_error = error
    health.last_failure_s = clocks.wall_s()
    _log.error("task_failed", task=health.name, failures=health.failures, error=error)


def _sentence(error: BaseException) -> str:
    return str(error) or type(error).__name__
