"""The journal returns what was written, and an unusable journal is refused with a sentence."""

from __future__ import annotations

import dataclasses
import math
import os
import sqlite3
import typing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.control import Settings, State, step
from offcut.errors import StoreError
from offcut.model import Allocation, Job, ScalingCurve, Sizes
from offcut.model import events as ev
from offcut.model.effects import WriteLog
from offcut.model.events import Member, Timer
from offcut.model.search_space import CategoricalParameter, Condition, FloatParameter, IntParameter, SearchSpace
from offcut.model.sweep import SchedulerAnswer, SchedulerChoice, Sweep
from offcut.store import Journal, row_format
from offcut.store.migrations import VERSION

JOB = Job(
    id="a-1",
    name="a",
    command=("train.py", "--lr", "0.1", "ü\n"),
    sizes=Sizes((1, 2, 4)),
    ranks_per_node=4,
    workdir="/home/u",
    env=(("A", "1"), ("B", "")),
    setup="module load x\nsource y",
    weight=2.5,
    priority=-1,
    curve=ScalingCurve((1, 4), (10.0, 33.3)),
    mode="restart",
    goal_samples=10**12,
    max_failures=0,
    grow_cost_s=0.0,
    shrink_cost_s=1e-9,
    step_records=True,
)
ALLOCATION = Allocation(
    nodes={"a-1": 2}, objective=1 / 3, bound=math.inf, proven=False, solve_ms=0.1, price=-0.0, classes={"a-1": {"x": 1}}
)
SPACE = SearchSpace(
    (
        FloatParameter(name="lr", low=0, high=1),
        IntParameter(name="n", low=1, high=8),
        CategoricalParameter(name="c", choices=(True, 1, "1", 1.5)),
        IntParameter(name="m", low=1, high=8, when=Condition("c", (True, "1"))),
    )
)
SWEEP = Sweep(
    id="s-2",
    name="s",
    job=JOB,
    space=SPACE,
    scheduler=SchedulerChoice("asha", (("max_budget", 9), ("min_budget", 1.0))),
)
OFFERS = (ev.Offer("n1"), ev.Offer("n2", 5.5), ev.Offer("n3", math.inf))
EVENTS: list[ev.Event] = [
    ev.ControllerStarted(time_s=0.5, incarnation=3, generations=(ev.JobGeneration("a-1", 4),)),
    ev.ControllerStopping(time_s=0.6),
    ev.NodesChanged(time_s=1.0, offered=OFFERS, wanted=("w",), lost=("l",)),
    ev.ClaimRefused(time_s=2.0, nodes=("n3",), reason="the partition is closed"),
    ev.NodesBooted(time_s=3.0, nodes=("n1", "n2")),
    ev.AgentReported(time_s=3.1, node="n1", workers=(ev.RunningWorker("a-1", 7, True, 9),), incarnation=8),
    ev.WorkersReady(time_s=4.0, job="a-1", members=(Member("n1", 1), Member("n2", 2))),
    ev.WorkerExited(time_s=5.0, job="a-1", member=Member("n1", 1), outcome="failed", detail="x" * 4000, generation=3),
    ev.GenerationFormed(time_s=6.0, job="a-1", generation=2, took_s=0.1, step=8),
    ev.GenerationBroken(time_s=7.0, job="a-1", generation=2, member=Member("n2", 2), detail="a peer is gone"),
    ev.JobNearsEnd(time_s=7.5, job="a-1"),
    ev.SweepSubmitted(time_s=7.6, sweep=SWEEP),
    ev.SweepPaused(time_s=7.6, sweep="s-2"),
    ev.SweepResumed(time_s=7.6, sweep="s-2"),
    ev.SweepCancelled(time_s=7.6, sweep="s-2"),
    ev.SweepExtended(time_s=7.6, sweep="s-2", max_trials=20),
    ev.ObjectivesRead(time_s=7.7, job="s-2.0", reports=(ev.ObjectiveReport(1.0, math.inf),), complete=True),
    ev.TrialSuggested(time_s=7.8, sweep="s-2", trial=3, parameters={"a": 1, "b": 1.0, "c": True, "d": "1"}),
    ev.JobTrained(time_s=8.0, job="a-1", generation=2),
    ev.JobSubmitted(time_s=9.0, job=JOB),
    ev.JobProgressed(time_s=10.0, job="a-1", generation=2, step=5, samples=10**15, loss=math.inf),
    ev.JobNoted(time_s=10.5, job="a-1", text="the checkpoint could not be written"),
    ev.JobMeasured(time_s=10.5, job="a-1", generation=3, size=2, rate=812.25, spread=0.03, stretches=8, span_s=4.2),
    ev.JobCancelled(time_s=11.0, job="a-1"),
    ev.JobPaused(time_s=12.0, job="a-1"),
    ev.JobResumed(time_s=13.0, job="a-1"),
    ev.JobChanged(time_s=14.0, job="a-1", sizes=Sizes((3,)), weight=None),
    ev.JobChanged(time_s=14.0, job="a-1", sizes=None, weight=1e-300),
    ev.ReleaseAsked(time_s=15.0, nodes=("n1",)),
    ev.ReleaseAsked(time_s=15.0),
    ev.ClaimingResumed(time_s=16.0),
    ev.LeaseChecked(time_s=16.0, certain=False),
    ev.JobsForgotten(time_s=16.0, jobs=("b-1",), files=True),
    ev.SweepForgotten(time_s=16.0, sweep="s-9", jobs=("s-9.0",), files=True),
    ev.SchedulerAnswered(
        time_s=16.0,
        sweep="s-1",
        revision=3,
        answers=(SchedulerAnswer(call="decide", trial=1, action="exploit", number=2, parameters={"lr": 0.1}),),
    ),
    ev.JobStateCopied(time_s=16.0, job="s-1.0-1", source="s-1.1"),
    ev.NodesForgiven(time_s=16.0, nodes=("n1",)),
    ev.Solved(time_s=17.0, version=3, allocation=ALLOCATION),
    ev.SolveFailed(time_s=18.0, version=4, reason="out of memory"),
    ev.TimerFired(time_s=1_790_000_000.123456, timer=Timer("boot", "n1")),
    ev.NodesHeld(time_s=18.5, nodes=("n1", "n2")),
    ev.EventsGathered(
        time_s=19.0,
        events=(
            ev.WorkerExited(time_s=18.9, job="a-1", member=Member("n1", 1), outcome="left"),
            ev.NodesChanged(time_s=19.0, lost=("n2",)),
        ),
    ),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def filled(path: Path, events: list[ev.Event]) -> State:
    """Write a journal at `path` with these events. Return the state that they lead to."""
    book = Journal(path)
    state = book.load(Settings())
    for event in events:
        book.append(state.event_id + 1, event)
        step(state, event)
    book.close()
    return state


def test_every_kind_of_event_is_here():
    assert {type(event) for event in EVENTS} == set(typing.get_args(ev.Event))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_an_event_comes_back_as_it_was(path, event):
    book = Journal(path)
    book.append(1, event)
    assert list(book.events()) == [(1, event)]
    book.close()
    assert list(Journal(path).events(after=0)) == [(1, event)]
    assert list(Journal(path).events(after=1)) == []


def test_values_that_are_not_numbers_come_back_as_none(path):
    book = Journal(path)
    event = ev.JobProgressed(time_s=-math.inf, job="a", generation=1, step=2, samples=3, loss=math.nan)
    book.append(1, event)
    ((_, back),) = book.events()
    assert math.isnan(back.loss)
    assert dataclasses.replace(back, loss=0.0) == dataclasses.replace(event, loss=0.0)


@given(
    st.floats(allow_nan=False),
    st.floats(0.0, exclude_min=True),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(-(2**62), 2**62),
)
@settings(max_examples=60, deadline=None)
def test_any_number_and_any_text_come_back_exactly(time_s, until_s, text, version):
    for event in (
        ev.NodesChanged(time_s=time_s, offered=(ev.Offer(text, until_s),)),
        ev.SolveFailed(time_s=time_s, version=version, reason=text),
    ):
        assert row_format.EVENT.validate_json(row_format.encode(event)) == event


def test_a_state_with_everything_in_it_comes_back_from_its_snapshot(path):
    events = [event for event in EVENTS if not isinstance(event, ev.JobProgressed)]
    state = filled(path, events)
    state.jobs["a-1"].progress.loss = 0.25
    state.jobs["a-1"].forming = {3: (Member("n1", 4),)}
    state.jobs["a-1"].first_member = Member("n1", 4)
    book = Journal(path)
    book.snapshot(state)
    back = book.load(Settings())
    assert back == state
    assert back.jobs["a-1"].progress == state.jobs["a-1"].progress
    assert list(back.nodes) == list(state.nodes)


def test_only_the_newest_snapshot_is_kept_and_the_events_before_it_stay(path):
    state = filled(path, EVENTS[:3])
    book = Journal(path)
    book.snapshot(state)
    book.append(4, EVENTS[-1])
    step(state, EVENTS[-1])
    book.snapshot(state)
    book.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT event_id FROM snapshots").fetchall() == [(4,)]
        assert db.execute("SELECT count(*) FROM events").fetchone() == (4,)


def test_a_journal_remembers_the_settings_under_which_it_began(path):
    old, new = Settings(hold_s=1.0), Settings(hold_s=2.0, cost_model="published")
    book = Journal(path)
    state = book.load(old)
    book.append(1, EVENTS[0])
    step(state, EVENTS[0])
    book.close()
    book = Journal(path)
    back = book.load(new)
    assert back.settings == new
    assert dataclasses.replace(back, settings=old) == state
    assert book.load(new) == back, "what was decided under the old settings is not decided again"
    book.append(2, EVENTS[1])
    held_then = [state.settings for state, _ in book.replay()]
    assert held_then == [old, new]
    book.close()
    assert Journal(path).load(old).settings == old
    assert [state.settings for state, _ in Journal(path).replay()] == [old, new]


def test_the_story_of_a_job_is_told_in_order_and_once(path):
    book = Journal(path)
    lines = [
        WriteLog(cause=cause, index=i, subject=subject, text=f"{cause}.{i}")
        for cause in (1, 2)
        for i, subject in enumerate("ab")
    ]
    book.append_log(5.0, lines)
    book.append_log(5.0, lines)
    assert book.story("a") == [(5.0, "1.0"), (5.0, "2.0")]
    assert book.story("b", last=1) == [(5.0, "2.1")]
    assert book.story("c") == []


def test_a_number_is_written_once(path):
    book = Journal(path)
    book.append(1, EVENTS[0])
    with pytest.raises(StoreError, match=r"cannot be used: UNIQUE constraint failed"):
        book.append(1, EVENTS[1])


def test_a_file_system_without_a_write_ahead_log(path, monkeypatch):
    connect = sqlite3.connect
    monkeypatch.setattr(
        "sqlite3.connect", lambda path, **options: connect(f"file:{path}?vfs=unix-dotfile", uri=True, **options)
    )
    book = Journal(path)
    state = book.load(Settings())
    book.append(1, EVENTS[0])
    step(state, EVENTS[0])
    book.sync()
    assert not path.with_name(f"{path.name}-wal").exists()
    assert book._db.execute("PRAGMA synchronous").fetchone() == (2,), "every commit is synced"
    book.close()
    assert Journal(path).load(Settings()) == state


# -- what cannot be used ----------------------------------------------------------------------------------------------


def test_a_newer_version_is_refused_as_newer(path):
    Journal(path).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'version'")
    with pytest.raises(StoreError) as caught:
        Journal(path)
    assert caught.value.what == (
        f"The journal {path} has version 99, which a newer offcut writes; this one reads versions up to {VERSION}."
    )
    assert "Run the newer offcut" in caught.value.next_step


def test_an_event_of_a_kind_that_only_a_newer_offcut_knows(path):
    filled(path, EVENTS[:2])
    data = '{"time_s": 3.0, "kind": "unheard_of"}'
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO events VALUES (3, 3.0, 'unheard_of', ?, ?, NULL)", (data, row_format.checksum(3, data)))
    with pytest.raises(StoreError) as caught:
        Journal(path).load(Settings())
    assert caught.value.what == (
        f"The journal {path} was written by another version of offcut: this one cannot read event 3."
    )


def test_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(StoreError, match=r"The journal .*/nowhere/j cannot be used: unable to open database file"):
        Journal(tmp_path / "nowhere" / "j")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="/proc is a directory that not even root can write to")
def test_a_directory_that_cannot_be_written():
    with pytest.raises(StoreError) as caught:
        Journal(Path("/proc/self/journal"))
    assert caught.value.next_step == "Is the disk full or read-only? Choose another --state."


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_journal_that_may_only_be_read(path):
    Journal(path).close()
    path.parent.chmod(0o500)
    path.chmod(0o400)
    try:
        with pytest.raises(StoreError, match="cannot be used"):
            Journal(path)
    finally:
        path.parent.chmod(0o700)


def test_a_full_disk_is_told_when_an_event_cannot_be_written(path):
    book = Journal(path)
    book._db.execute("PRAGMA max_page_count = 12")
    long = dataclasses.replace(EVENTS[7], detail="x" * 100_000)
    with pytest.raises(StoreError, match="database or disk is full") as caught:
        book.append(1, long)
    assert "Is the disk full" in caught.value.next_step
    assert list(book.events()) == []


def test_a_file_that_is_not_a_journal(path):
    path.write_text("this is not a database, but it is long enough to be read as one\n" * 20)
    with pytest.raises(StoreError, match="file is not a database"):
        Journal(path)
