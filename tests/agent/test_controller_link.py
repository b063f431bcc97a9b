"""Reports that wait for an absent controller are bounded, and the ends of workers are never dropped."""

from __future__ import annotations

import asyncio
from pathlib import Path

from offcut.agent import controller_link
from offcut.agent.controller_link import ControllerLink
from offcut.wire import messages


def test_the_oldest_reports_are_dropped_and_no_end_of_a_worker(monkeypatch) -> None:
    monkeypatch.setattr(controller_link, "_MOST_WAITING", 10)

    async def scenario() -> None:
        line = ControllerLink(Path(), Path(), lambda: messages.Hello(node="n", pilot="p"), lambda _: None)
        ends = [messages.Exited(job="a", incarnation=i, outcome="lost") for i in range(3)]
        line.report(messages.Note(job="a", text="the first may be on its way"))
        for end in ends:
            line.report(end)
            for i in range(100):
                line.report(messages.Note(job="a", text=str(i)))
        assert line.unsent_exits() == ends
        kept = [message.text for message in line._waiting if isinstance(message, messages.Note)]
        assert kept == ["the first may be on its way", *map(str, range(94, 100))]

    asyncio.run(scenario())
