"""Reports that wait for an absent controller are bounded, and the ends of workers are never dropped."""

from __future__ import annotations

import asyncio
from itertools import accumulate, pairwise
from pathlib import Path

from offcut.agent import controller_link
from offcut.agent.controller_dial import WebSocketDial
from offcut.agent.controller_link import ControllerLink, retry_wait_s
from offcut.wire import messages


def test_the_oldest_reports_are_dropped_and_no_end_of_a_worker(monkeypatch) -> None:
    monkeypatch.setattr(controller_link, "_MOST_WAITING", 10)

    async def scenario() -> None:
        dial = WebSocketDial(Path(), Path())
        line = ControllerLink(dial, lambda: messages.Hello(node="n", pilot="p"), lambda _: None)
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


def test_agents_that_were_cut_off_at_one_instant_do_not_dial_at_one_instant() -> None:
    def attempts_s() -> list[float]:
        return list(accumulate(retry_wait_s(attempt) for attempt in range(12)))

    agents = [attempts_s() for _ in range(100)]
    for times_s in agents:
        assert all(later - earlier <= 0.5 for earlier, later in pairwise(times_s[:10])), "a restart takes a few seconds"
    third = sorted(times_s[4] for times_s in agents)
    assert third[-1] - third[0] > 0.1
    assert 0.5 <= retry_wait_s(1000) <= 1.0
