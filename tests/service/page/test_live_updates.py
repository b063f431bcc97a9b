"""Browsers get what has changed, once each, and everything when they connect again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from offcut.errors import InputError, ServiceError
from offcut.service.page.live_updates import LiveUpdates


class Source:
    """Makes the parts of one view."""

    def __init__(self) -> None:
        self.parts = {"a": "1", "b": "one\ntwo"}
        self.made = 0
        self.updates = LiveUpdates(self.make, most=2)

    async def make(self, view: str) -> dict[str, str]:
        if view != "v":
            raise InputError("There is no such view.")
        self.made += 1
        return dict(self.parts)


async def read(stream: AsyncGenerator[bytes], count: int) -> list[bytes]:
    return [await asyncio.wait_for(anext(stream), 30.0) for _ in range(count)]


def test_a_browser_gets_all_parts_and_then_those_that_change() -> None:
    async def run() -> None:
        source = Source()
        running = asyncio.create_task(source.updates.run())
        stream = source.updates.stream("v")
        assert await read(stream, 2) == [
            b"retry: 500\n\n",
            b"event: a\ndata: 1\n\nevent: b\ndata: one\ndata: two\n\n",
        ]
        source.parts["a"] = "2"
        source.updates.changed()
        assert await read(stream, 1) == [b"event: a\ndata: 2\n\n"]
        again = source.updates.stream("v")
        assert (await read(again, 2))[1].startswith(b"event: a\ndata: 2\n\n")
        await stream.aclose()
        await again.aclose()
        running.cancel()

    asyncio.run(run())


def test_parts_are_made_once_however_many_look_and_not_at_all_where_nobody_does() -> None:
    async def run() -> None:
        source = Source()
        streams = [source.updates.stream("v") for _ in range(2)]
        for stream in streams:
            await read(stream, 2)
        before = source.made
        source.parts["a"] = "2"
        await source.updates._update("v")
        assert source.made == before + 1
        for stream in streams:
            assert await read(stream, 1) == [b"event: a\ndata: 2\n\n"]
            await stream.aclose()
        assert source.updates._browsers == {}
        assert source.updates._sent == {}

    asyncio.run(run())


def test_a_slow_browser_gets_the_newest_of_each_part_only() -> None:
    async def run() -> None:
        source = Source()
        stream = source.updates.stream("v")
        await read(stream, 2)
        for i in range(100):
            source.parts["a"] = f"value {i}"
            await source.updates._update("v")
        assert await read(stream, 1) == [b"event: a\ndata: value 99\n\n"]
        await stream.aclose()

    asyncio.run(run())


def test_too_many_and_unknown_views_are_refused() -> None:
    async def run() -> None:
        source = Source()
        streams = [source.updates.stream("v") for _ in range(2)]
        for stream in streams:
            await anext(stream)
        with pytest.raises(ServiceError, match="Too many pages"):
            await anext(source.updates.stream("v"))
        with pytest.raises(InputError, match="no such view"):
            await anext(LiveUpdates(source.make, most=2).stream("w"))
        for stream in streams:
            await stream.aclose()

    asyncio.run(run())
