"""The clocks of this computer, by which everything outside of pure code measures time.

A simulation sets others with `use`: they hold for the tasks and callbacks that begin in that context.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clocks:
    """`steady_s` never goes backwards, `wall_s` is seconds since 1970 and may be set."""

    steady_s: Callable[[], float]
    wall_s: Callable[[], float]


_clocks: ContextVar[Clocks | None] = ContextVar("clocks", default=None)


def use(clocks: Clocks) -> None:
    """Use these clocks in the present context instead of the computer's."""
    _clocks.set(clocks)


def steady_s() -> float:
    """Return the time of a clock that never goes backwards, in seconds from an arbitrary moment."""
    clocks = _clocks.get()
    return time.monotonic() if clocks is None else clocks.steady_s()


def wall_s() -> float:
    """Return the wall clock's time, in seconds since 1970."""
    clocks = _clocks.get()
    return time.time() if clocks is None else clocks.wall_s()
