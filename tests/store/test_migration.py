"""Journals of older versions are read, and are of this version from then on."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from books import JOB, life

from offcut.control import Settings, State, step
from offcut.control.state import DiskWait
from offcut.errors import StoreError
from offcut.model import events as ev
from offcut.model.events import Member, Timer
from offcut.store import Journal, migrations, row_format
from offcut.store.migrations import to_3

_VERSION_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE events (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL
);
CREATE TABLE story (
    event_id INTEGER NOT NULL, place INTEGER NOT NULL, time_s REAL NOT NULL, subject TEXT NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (event_id, place)
);
CREATE INDEX story_of ON story (subject, event_id);
CREATE TABLE snapshots (event_id INTEGER PRIMARY KEY, data TEXT NOT NULL);
INSERT INTO meta VALUES ('version', '1');
INSERT INTO story VALUES (1, 0, 1.0, 'a-1', 'submitted');
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def _old_snapshot(state: State) -> str:
    """Return the snapshot with the names that its fields had before version 3."""
    plain = json.loads(row_format.encode(state))
    plain["timers"] = {f"{timer.purpose}:{timer.subject}": at_s for timer, at_s in state.timers.items()}
    for old, new in to_3._STATE_FIELDS.items():
        plain[old] = plain.pop(new)
    for job in plain["jobs"].values():
        for old, new in to_3._JOB_FIELDS.items():
            job[old] = job.pop(new)
        assert job.pop("launch") is None
        disk = job.pop("disk")
        job |= {old: disk[new] for old, new in to_3._DISK_FIELDS.items()}
    return json.dumps(plain)


def version_1(path: Path, *, snapshot_at: int, settings: Settings) -> State:
    """Write a journal as version 1 did, begun under the default settings. Return the state that it leads to."""
    state = State()
    with sqlite3.connect(path) as db:
        db.executescript(_VERSION_1)
        db.execute("INSERT INTO meta VALUES ('settings', ?)", (row_format.encode(Settings()),))
        for number, event in enumerate(life(), 1):
            db.execute(
                "INSERT INTO events VALUES (?, ?, ?, ?)", (number, event.time_s, event.kind, row_format.encode(event))
            )
            step(state, event)
            if number == snapshot_at:
                state.settings = settings
                db.execute("INSERT INTO snapshots VALUES (?, ?)", (number, _old_snapshot(state)))
    db.close()
    return state


def test_version_1_is_read_and_kept_as_the_newest(path):
    settings = Settings(hold_s=3.0)
    state = version_1(path, snapshot_at=8, settings=settings)
    book = Journal(path)
    assert book.load(settings) == state
    assert book.story("a-1") == [(1.0, "submitted")]
    held = [state.settings.hold_s for state, _ in book.replay()]
    assert held == [10.0] * 8 + [3.0] * (len(life()) - 8)
    book.close()
    again = Journal(path)
    assert again.load(settings) == state
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone() == (str(migrations.VERSION),)
    db.close()


def test_a_migration_that_is_interrupted_leaves_the_journal_as_it_was(path, monkeypatch):
    state = version_1(path, snapshot_at=8, settings=Settings())

    def dies(db):
        migrations.to_2.migrate(db)
        raise KeyboardInterrupt

    monkeypatch.setitem(migrations._STEPS, 2, dies)
    with pytest.raises(KeyboardInterrupt):
        Journal(path)
    monkeypatch.undo()
    assert Journal(path).load(Settings()) == state


def test_version_2_is_read_with_its_generations(path):
    """`version_2.sql` was written by an offcut of that version: three jobs, one with a generation that broke."""
    with sqlite3.connect(path) as db:
        db.executescript(Path(__file__).with_name("version_2.sql").read_text())
    db.close()
    book = Journal(path)
    state = book.load(Settings())
    assert book.remarks == []
    assert [(job.phase, job.generation, job.formed_generation, job.size) for job in state.jobs.values()] == [
        ("running", 22, 22, 3),
        ("running", 1, 1, 2),
        ("waiting", 0, 0, 0),
    ]
    assert state.jobs["a"].job.env == (("epoch", "7"),), "a variable's name is the user's"
    assert "generation_broken" in {event.kind for _, event in book.events(after=0)}


def test_version_2_leads_to_the_same_state_with_and_without_its_snapshot(path):
    with sqlite3.connect(path) as db:
        db.executescript(Path(__file__).with_name("version_2.sql").read_text())
    db.close()
    book = Journal(path)
    state = book.load(Settings())
    fired = [event.timer for _, event in book.events(after=0) if isinstance(event, ev.TimerFired)]
    assert fired[:3] == [Timer("join", "a"), Timer("join", "b"), Timer("renew", "a")]
    book.close()
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM snapshots")
    db.close()
    again = Journal(path).load(Settings())
    assert again.timers == state.timers
    for snapshot, whole in zip(state.jobs.values(), again.jobs.values(), strict=True):
        # The snapshot does not say what time on nodes came before it: it is left out, rather than counted from 1970 on.
        assert 0.0 <= snapshot.node_s(state.now_s) <= whole.node_s(again.now_s) < 1e6
        snapshot.past_node_s, snapshot.nodes_since_s = whole.past_node_s, whole.nodes_since_s
    assert again.jobs == state.jobs
    assert again.nodes == state.nodes


def test_a_damaged_row_of_version_2_stays_damaged(path):
    with sqlite3.connect(path) as db:
        db.executescript(Path(__file__).with_name("version_2.sql").read_text())
        db.execute("UPDATE events SET data = replace(data, 'solved', 'sulved') WHERE id = 40")
    db.close()
    with pytest.raises(StoreError, match="event 40"):
        Journal(path).load(Settings())


@pytest.mark.parametrize(
    ("key", "timer"),
    [
        ("hold:n1", Timer("hold", "n1")),
        ("ready:rack:7:3", Timer("ready", "rack:7", 3)),
        ("retry:n1:12", Timer("retry", "n1", 12)),
        ("rest:n1", Timer("set_aside", "n1")),
        ("broken:a", Timer("renew", "a")),
        ("solve:again", Timer("solve_again")),
    ],
)
def test_a_timer_that_version_2_named_by_text_is_typed(key, timer):
    assert Timer(**to_3._timer(key)) == timer


@pytest.mark.parametrize("mode", ["session", "restart"])
def test_a_job_of_version_2_is_split_by_its_mode(mode):
    state = State()
    step(state, ev.JobSubmitted(time_s=1.0, job=replace(JOB, mode=mode)))
    expected = state.jobs["a-1"]
    expected.disk = DiskWait("the disk is full", 2, 9.0)
    old = json.loads(_old_snapshot(state)) if mode == "session" else _with_launch(state)
    assert row_format.STATE.validate_python(to_3._new_state(old)).jobs["a-1"] == expected


def _with_launch(state: State) -> dict[str, Any]:
    job = state.jobs["a-1"]
    launch, job.launch = job.launch, None
    old = json.loads(_old_snapshot(state))
    old["jobs"]["a-1"] |= {
        "launched_s": 5.0,
        "done": [{"node": "n1", "incarnation": 1}],
        "fault": None,
        "excused": False,
    }
    job.launch = replace(launch, launched_s=5.0, finished=(Member("n1", 1),), excused=False)
    return old
