"""An asyncio event loop under a simulated clock: one thread, the same order of callbacks in every run.

Every callback belongs to a simulated process, by its context. A killed process is never called again, as after SIGKILL:
no `finally` of it runs. What comes due for a frozen process waits until it is revived.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar, TypeVarTuple

from offcut.errors import StoreError
from offcut.process import clocks, daemon_thread
from offcut.process.clocks import Clocks

_Result = TypeVar("_Result")
_Args = TypeVarTuple("_Args")

#: This many callbacks at one instant mean that the simulated system waits for nothing and goes on for ever.
_MOST_AT_ONCE = 200_000


class Process:
    """A simulated process: what it does is in callbacks and tasks of `context`."""

    def __init__(self, name: str, loop: SimulatedLoop, wall: WallClock) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        #: Called when it has ended, however it did.
        self.on_end: list[Callable[[], None]] = []
        self.context: Context = copy_context()
        self._loop = loop
        self._deferred: list[asyncio.Handle] = []
        #: Referenced so that no coroutine of a killed process is finalised before the simulation has ended.
        self.tasks: list[asyncio.Task[Any]] = []
        loop.processes.append(self)
        self.context.run(current.set, self)
        self.context.run(clocks.use, Clocks(loop.time, wall.now_s))
        self.context.run(daemon_thread.in_place_of_threads.set, loop.call_slowly)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task of this process."""
        task = self._loop.create_task(coroutine, context=self.context)
        return task

    def call(self, function: Callable[..., Any], *arguments: Any, after_s: float = 0.0) -> None:
        """Let the process call the function, now or later."""
        self._loop.call_at(self._loop.time() + after_s, function, *arguments, context=self.context)

    def end(self) -> None:
        """End it at once: nothing of it is called any more."""
        if self.alive:
            self.alive = False
            self._deferred.clear()
            for call in self.on_end:
                call()

    def freeze(self) -> None:
        self.frozen = True

    def revive(self) -> None:
        """Let it go on; what came due meanwhile is called now, in order."""
        self.frozen = False
        deferred, self._deferred = self._deferred, []
        for handle in deferred:
            self._loop.ready.append(handle)

    def defer(self, handle: asyncio.Handle) -> None:
        self._deferred.append(handle)


#: The process to which a callback belongs; None for what belongs to the world around.
current: ContextVar[Process | None] = ContextVar("process", default=None)


class WallClock:
    """The wall clock of one simulated computer, which may be set."""

    def __init__(self, loop: SimulatedLoop, start_s: float) -> None:
        self._loop = loop
        self.offset_s = start_s

    def now_s(self) -> float:
        return self._loop.time() + self.offset_s


class SimulatedLoop(asyncio.BaseEventLoop):
    """`slow_s` draws how long a call takes that a real process makes in a thread."""

    def __init__(self, slow_s: Callable[[], float]) -> None:
        self._now_s = 0.0
        self._slow_s = slow_s
        self.ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        #: Exceptions that nothing has caught, with the process in which they were raised.
        self.errors: list[str] = []
        self.callbacks = 0
        #: Ended ones too; see `Process.tasks`.
        self.processes: list[Process] = []
        self._closed = False

    # -- running ------------------------------------------------------------------------------------------------------

    def run_until(self, at_s: float, stop: Callable[[], bool]) -> None:
        """Let everything happen that is due up to `at_s`, or until `stop()`."""
        asyncio._set_running_loop(self)
        try:
            at_once = 0
            while not stop():
                if self.ready:
                    at_once += 1
                    if at_once > _MOST_AT_ONCE:
                        raise RuntimeError("the simulated system goes on for ever without time passing")
                    self._call(self.ready.popleft())
                    continue
                at_once = 0
                while self._timers and self._timers[0][2].cancelled():
                    heapq.heappop(self._timers)
                if not self._timers or self._timers[0][0] > at_s:
                    self._now_s = max(self._now_s, at_s)
                    return
                when_s, _, handle = heapq.heappop(self._timers)
                self._now_s = max(self._now_s, when_s)
                self._call(handle)
        finally:
            asyncio._set_running_loop(None)

    def _call(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        process = handle._context.get(current)  # type: ignore[attr-defined]
        if process is not None:
            if not process.alive:
                return
            if process.frozen:
                process.defer(handle)
                return
        self.callbacks += 1
        handle._run()

    def pending_timers(self) -> int:
        """Return how many timers are set."""
        return len(self._timers)

    async def call_slowly(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """Make a call that a real process makes in a thread: it takes a while."""
        await asyncio.sleep(self._slow_s())
        return function(*arguments)

    # -- asyncio's interface ------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now_s

    def call_soon(
        self, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*_Args], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are dropped when they come due."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, context=context)
        process = (context or copy_context()).get(current)
        if process is not None:
            tasks = process.tasks
            tasks.append(task)
            if len(tasks) > 64:
                process.tasks = [each for each in tasks if not each.done()]
        return task

    def run_in_executor(
        self, executor: Any, func: Callable[[*_Args], _Result], *args: *_Args
    ) -> asyncio.Future[_Result]:
        return asyncio.ensure_future(self.call_slowly(func, *args), loop=self)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._closed:
            return
        error = context.get("exception")
        if isinstance(error, StoreError):
            return  # the journal cannot be written: that ends the controller in good order
        process = current.get()
        where = process.name if process is not None else "the world"
        self.errors.append(f"{where}: {context.get('message')}: {type(error).__name__}: {error}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self.ready.clear()
        self._timers.clear()
