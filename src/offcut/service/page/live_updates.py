"""Sends the parts of a view that have changed to all browsers that show it.

A *part* is a named piece of HTML or JSON. The parts of a view are made once, however many browsers show it; one that
connects gets all of them, so a connection that was dropped goes on where it is.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from offcut.errors import OffcutError, ServiceError
from offcut.process import clocks

#: Makes the parts of a view, by name.
MakeParts = Callable[[str], Awaitable[dict[str, str]]]

#: Changes are gathered for this long, and without any the parts are made again after `_PERIOD_S`: rates change.
_GATHER_S = 0.25
_PERIOD_S = 1.0
#: A comment is sent after this without a change, so that proxies do not close the connection.
_COMMENT_S = 15.0


@dataclass(slots=True, eq=False)
class _Browser:
    """One connection. `waiting`: the parts that are still to be sent; of a part only the newest."""

    waiting: dict[str, str] = field(default_factory=dict)
    filled: asyncio.Event = field(default_factory=asyncio.Event)


class LiveUpdates:
    """The views that are looked at.

    Args:
        make_parts: makes the parts of a view; an OffcutError ends the connections to this view.
        most: at most this many connections at once.
    """

    def __init__(self, make_parts: MakeParts, most: int) -> None:
        self._make_parts = make_parts
        self._most = most
        self._browsers: dict[str, set[_Browser]] = defaultdict(set)
        self._sent: dict[str, dict[str, str]] = {}
        self._changed = asyncio.Event()
        self._closed = False

    def changed(self) -> None:
        """Note that the controller's state has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Send changes until cancelled."""
        self._closed = False
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _PERIOD_S)
            self._changed.clear()
            for view in list(self._browsers):
                await self._update(view)
            await asyncio.sleep(_GATHER_S)

    def close(self) -> None:
        """End all connections."""
        self._closed = True
        for browsers in self._browsers.values():
            for browser in browsers:
                browser.filled.set()

    async def _update(self, view: str) -> None:
        try:
            parts = await self._make_parts(view)
        except OffcutError as error:
            parts = {"gone": error.what}
        before = self._sent.get(view, {})
        changed = {name: text for name, text in parts.items() if before.get(name) != text}
        if not changed or view not in self._browsers:
            return
        self._sent[view] = parts
        for browser in self._browsers[view]:
            browser.waiting |= changed
            browser.filled.set()

    async def stream(self, view: str) -> AsyncGenerator[str]:
        """Yield the parts of `view` as server-sent events, all of them first.

        Raises:
            ServiceError: There are too many connections already.
            OffcutError: There is no such view.
        """
        if sum(map(len, self._browsers.values())) >= self._most:
            raise ServiceError("Too many pages are open.", next_step="Close some, or reload this one later.")
        parts = await self._make_parts(view)
        browser = _Browser(dict(parts))
        browser.filled.set()
        self._browsers[view].add(browser)
        self._sent.setdefault(view, parts)
        try:
            yield "retry: 500\n\n"
            said_s = clocks.steady_s()
            while not self._closed:
                with suppress(TimeoutError):
                    await asyncio.wait_for(browser.filled.wait(), _COMMENT_S)
                browser.filled.clear()
                waiting, browser.waiting = browser.waiting, {}
                for name, text in waiting.items():
                    yield _event(name, text)
                if not waiting and clocks.steady_s() - said_s >= _COMMENT_S:
                    yield ": still here\n\n"
                said_s = clocks.steady_s()
        finally:
            self._browsers[view].discard(browser)
            if not self._browsers[view]:
                del self._browsers[view]
                self._sent.pop(view, None)


def _event(name: str, text: str) -> str:
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in text.split("\n")) + "\n"
