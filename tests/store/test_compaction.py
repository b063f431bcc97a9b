"""The journal keeps a bounded number of events, and a snapshot from which they lead to the state."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from books import JOB

from offcut.control import Settings, State, step
from offcut.model import events as ev
from offcut.model.effects import WriteLog
from offcut.store import Journal, repair

MOST = 40


class Book:
    """A journal that keeps `MOST` events at most, with a snapshot after every five."""

    def __init__(self, path: Path, most: int = MOST) -> None:
        self.path = path
        self.journal = Journal(path)
        self.state: State = self.journal.load(Settings(journal_events=most))

    def write(self, events: int) -> None:
        for _ in range(events):
            number = self.state.event_id + 1
            event: ev.Event = ev.JobNoted(time_s=float(number), job="a-1", text=f"note {number}")
            if number == 1:
                event = ev.JobSubmitted(time_s=1.0, job=JOB)
            self.journal.append(number, event)
            step(self.state, event)
            lines = [WriteLog(cause=number, index=i, subject=s, text="x") for i, s in enumerate(("a-1", "n1"))]
            self.journal.append_log(float(number), lines)
            if number % 5 == 0:
                self.journal.snapshot(self.state)

    def kept(self) -> list[int]:
        with sqlite3.connect(self.path) as db:
            return [number for (number,) in db.execute("SELECT id FROM events ORDER BY id")]

    def snapshots(self) -> list[int]:
        with sqlite3.connect(self.path) as db:
            return [number for (number,) in db.execute("SELECT event_id FROM snapshots ORDER BY event_id")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def test_events_and_snapshots_are_bounded(path):
    book = Book(path)
    for _ in range(60):
        book.write(7)
        # The oldest go a few at a time, so that some of them are still there for a while.
        assert len(book.kept()) <= MOST + 15
        assert len(book.snapshots()) <= 3
        assert len(book.kept()) >= min(book.state.event_id, MOST // 2)


def test_every_start_leads_to_the_same_state_and_goes_on(path):
    book = Book(path)
    for events in (1, 19, 20, 1, 20, 33, 50):
        book.write(events)
        before = book.state
        book.journal.close()
        book = Book(path)
        assert book.state == before
        assert not book.journal.remarks


def test_the_report_begins_with_the_oldest_snapshot(path):
    book = Book(path)
    book.write(203)
    replayed = [(state.event_id, event.time_s) for state, event in book.journal.replay()]
    first = book.snapshots()[0]
    assert replayed == [(number, float(number)) for number in range(first + 1, 204)]
    assert MOST // 2 <= len(replayed) <= MOST + 5


def test_stories_of_nodes_go_with_their_events_and_those_of_jobs_stay(path):
    book = Book(path)
    book.write(200)
    assert len(book.journal.story("n1", last=1000)) <= MOST + 15
    assert len(book.journal.story("a-1", last=1000)) == 200


def test_an_older_snapshot_stands_in_for_a_damaged_one(path):
    book = Book(path)
    book.write(203)
    book.journal.close()
    newest = book.snapshots()[-1]
    with sqlite3.connect(path) as db:
        db.execute("UPDATE snapshots SET data = '{}' WHERE event_id = ?", (newest,))
    again = Book(path)
    assert again.state == book.state
    assert any(f"snapshot after event {newest}" in remark for remark in again.journal.remarks)


def test_a_compacted_journal_is_whole(path):
    book = Book(path)
    book.write(203)
    book.journal.close()
    assert not repair.check(path, live=False).faults


def test_a_larger_limit_deletes_nothing_more(path):
    book = Book(path)
    book.write(103)
    book.journal.close()
    first = book.snapshots()[0]
    larger = Book(path, most=10_000)
    larger.write(200)
    assert larger.snapshots()[0] == first
    assert larger.kept()[-1] == 303
