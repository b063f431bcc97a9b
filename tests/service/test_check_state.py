"""The setting `check_state`: a state that does not agree with itself is logged with its event, and nothing stops."""

from __future__ import annotations

import asyncio
import sys

import pytest
from controlled import Controlled

from offcut.control import Settings
from offcut.model import events as ev

STEP = sys.modules["offcut.control.step"]


@pytest.fixture
def spoilt(monkeypatch):
    """A note about a job makes the controller forget whose node n1 is."""

    def spoil(context, event):
        context.state.nodes["n1"].job = None

    monkeypatch.setitem(STEP._HANDLERS, ev.JobNoted, spoil)


@pytest.mark.parametrize("on", [False, True])
def test_a_wrong_state_is_logged_with_its_event_if_that_is_switched_on(tmp_path, monkeypatch, spoilt, on):
    async def scenario():
        it = Controlled(tmp_path, monkeypatch, Settings(check_state=on))
        it.submit("a")
        it.train("a", "n1", "n2")
        assert not it.journal.story("controller")
        assert it.send(ev.JobNoted, job="a", text="a note") is True
        told = [text for _, text in it.journal.story("controller")]
        wrong = f"after event {it.state.event_id} (job_noted) the state is wrong: "
        assert [text for text in told if text.startswith(wrong)] == told
        assert (f"{wrong}Node n1 says that its job is None, but it is assigned to a." in told) == on
        assert it.send(ev.JobPaused, job="a") is True, "the controller goes on"
        assert it.state.jobs["a"].phase == "paused"
        await asyncio.sleep(0)  # what was begun ends

    asyncio.run(scenario())
