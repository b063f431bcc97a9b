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
_GATHER_S = 0.75
_PERIOD_S = 1.0
#: A comment is sent after this without a change, so that proxies do not close the connection.
_COMMENT_S = 15.0


@dataclass(slots=True, eq=False)
class _Browser:
    """One connection. `waiting`: the events that are still to be sent, by part; of a part only the newest."""

    waiting: dict[str, bytes] = field(default_factory=dict)
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
        #: By view: what its browsers have, or are about to get.
        self._sent: dict[str, dict[str, bytes]] = {}
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
            events = await self._make_events(view)
        except OffcutError as error:
            events = {"gone": _event("gone", error.what)}
        before = self._sent.get(view, {})
        changed = {name: event for name, event in events.items() if before.get(name) != event}
        if not changed or view not in self._browsers:
            return
        self._sent[view] = events
        for browser in self._browsers[view]:
            browser.waiting |= changed
            browser.filled.set()

    async def _make_events(self, view: str) -> dict[str, bytes]:
        """Return the parts of `view` as events, by name: encoded once for all browsers."""
        return {name: _event(name, text) for name, text in (await self._make_parts(view)).items()}

    async def stream(self, view: str) -> AsyncGenerator[bytes]:
        """Yield the parts of `view` as server-sent events, all of them first.

        Raises:
            ServiceError: There are too many connections already.
            OffcutError: There is no such view.
        """
        if sum(map(len, self._browsers.values())) >= self._most:
            raise ServiceError("Too many pages are open.", next_step="Close some, or reload this one later.")
        events = await self._make_events(view)
        browser = _Browser(dict(events))
        browser.filled.set()
        self._browsers[view].add(browser)
        self._sent.setdefault(view, events)
        try:
            yield b"retry: 500\n\n"
            said_s = clocks.steady_s()
            while not self._closed:
                with suppress(TimeoutError):
                    await asyncio.wait_for(browser.filled.wait(), _COMMENT_S)
                browser.filled.clear()
                waiting, browser.waiting = browser.waiting, {}
                if waiting:
                    yield b"".join(waiting.values())
                elif clocks.steady_s() - said_s >= _COMMENT_S:
                    yield b": still here\n\n"
                said_s = clocks.steady_s()
        finally:
            self._browsers[view].discard(browser)
            if not self._browsers[view]:
                del self._browsers[view]
                self._sent.pop(view, None)


def _event(name: str, text: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in text.split("\n"))
    return f"event: {name}\n{lines}\n".encode()
