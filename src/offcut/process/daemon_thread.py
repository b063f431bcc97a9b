"""Makes calls that may hang (on a shared file system, say) in threads, so that the event loop never waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeVar

_Result = TypeVar("_Result")


#: How calls are made instead of in threads, in the tasks and callbacks that begin in this context: a simulation has no
#: threads. It is given the function and its arguments, and awaited.
in_place_of_threads: ContextVar[Callable[..., Awaitable[Any]] | None] = ContextVar("in_place_of_threads", default=None)


async def in_daemon_thread(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Return `function(*arguments)`, called in a thread of its own that does not keep the process from ending."""
    other = in_place_of_threads.get()
    if other is not None:
        result: _Result = await other(function, *arguments)
        return result
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()

    def settle(result: _Result | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def call() -> None:
        try:
            outcome = function(*arguments), None
        except BaseException as error:
            outcome = None, error  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop is closed: the result is not needed any more
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=call, daemon=True).start()
    return await done
