"""An exception while an event is answered changes nothing, is logged, and leaves a usable state directory."""

from __future__ import annotations

import asyncio
import sys

import pytest
from controlled import Controlled

from offcut.control import Settings
from offcut.errors import OffcutError
from offcut.model import events as ev
from offcut.service import views
from offcut.store.journal import Journal

STEP = sys.modules["offcut.control.step"]


@pytest.fixture
def fails(monkeypatch):
    """Let cancelling a job raise halfway."""
    answer = STEP._HANDLERS[ev.JobCancelled]

    def raises(context, event):
        answer(context, event)
        context.state.incarnations += 5
        raise ZeroDivisionError("division by zero")

    monkeypatch.setitem(STEP._HANDLERS, ev.JobCancelled, raises)
    return lambda: monkeypatch.setitem(STEP._HANDLERS, ev.JobCancelled, answer)


def test_an_event_that_fails_changes_nothing_and_is_logged(tmp_path, monkeypatch, fails):
    async def scenario():
        it = Controlled(tmp_path, monkeypatch)
        it.submit("a")
        it.train("a", "n1", "n2")
        it.controller.handle(ev.JobProgressed(time_s=5.0, job="a", generation=1, step=7, samples=70, loss=0.5))
        state, members, timers = it.state, it.state.jobs["a"].members, dict(it.state.timers)
        assert it.send(ev.JobCancelled, job="a") is False
        assert it.state is state, "everybody who looks at the state looks at the same one"
        assert (state.jobs["a"].phase, state.jobs["a"].members, state.timers) == ("running", members, timers)
        assert state.incarnations == 2
        assert state.jobs["a"].progress.step == 7
        number = state.event_id
        (told,) = views.status(it.controller)["skipped"]
        assert told["event_id"] == number
        assert told["reason"] == "ZeroDivisionError: division by zero"
        reason = told["reason"]
        words = f"event {number} (job_cancelled) could not be answered and changed nothing: {reason}"
        assert it.journal.story("a")[-1][1] == words
        assert it.journal.story("controller")[-1][1] == words
        with pytest.raises(OffcutError, match=r"could not answer this \(job_cancelled\): ZeroDivisionError"):
            it.controller.ask(ev.JobCancelled(time_s=it.now_s(), job="a"))
        # It goes on, and is the same after a restart, whether what failed is mended or not.
        assert it.send(ev.JobPaused, job="a") is True
        for mended in (False, True):
            if mended:
                fails()
            it.restart()
            assert it.state.event_id == number + 2
            assert it.state.jobs["a"].phase == "paused"
            assert [skipped.event_id for skipped in it.state.skipped] == [number, number + 1]
        assert it.send(ev.JobCancelled, job="a") is True
        assert it.state.jobs["a"].phase == "cancelled"

    asyncio.run(scenario())


def test_a_state_that_cannot_be_restored_ends_the_controller(tmp_path, monkeypatch, fails):
    async def scenario():
        it = Controlled(tmp_path, monkeypatch)
        it.submit("a")
        it.journal._db.execute("UPDATE events SET data = '{}' WHERE id = 1")
        with pytest.raises(OffcutError, match="event 1 is not what was written"):
            it.send(ev.JobCancelled, job="a")
        assert "event 1 is not what was written" in str(it.controller.unwritable.result())

    asyncio.run(scenario())


def test_a_snapshot_that_cannot_be_written_ends_nothing(tmp_path, monkeypatch):
    async def scenario():
        it = Controlled(tmp_path, monkeypatch)
        monkeypatch.setattr("offcut.service.controller.SNAPSHOT_EVERY", 1)
        it.journal._db.execute("DROP TABLE snapshots")
        it.submit("a")
        assert "a" in it.state.jobs
        assert not it.controller.unwritable.done()

    asyncio.run(scenario())


def test_a_profiler_whose_rates_are_0_is_logged_and_changes_nothing(tmp_path, monkeypatch):
    """Logarithms of what a user's function returns are taken: it is checked where it comes in."""
    profiler = tmp_path / "profiler.py"
    profiler.write_text("def curve(known):\n    return {n: (0.0 if n == 2 else float(n)) for n in range(1, 9)}\n")

    async def scenario():
        it = Controlled(tmp_path / "state", monkeypatch, Settings(profiler=str(profiler)))
        it.submit("a", "1:4")
        it.train("a", "n1", "n2", "n3", "n4")
        for size in (4, 1):
            it.send(ev.JobMeasured, job="a", generation=1, size=size, rate=float(size))
        assert it.send(ev.JobCancelled, job="a") is True
        assert any("the rate at 2 nodes is 0" in text for _, text in it.journal.story("a"))
        it.journal.close()
        assert Journal(it.paths.journal).load(it.settings).jobs["a"].phase == "cancelled"

    asyncio.run(scenario())
