"""Journals of older versions are read, and are of this version from then on."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from books import life

from offcut.control import Settings, State, step
from offcut.errors import StoreError
from offcut.store import Journal, migrations, records

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


def version_1(path: Path, *, snapshot_at: int, settings: Settings) -> State:
    """A journal as version 1 wrote it, which began under the default settings; the state that it leads to."""
    state = State()
    with sqlite3.connect(path) as db:
        db.executescript(_VERSION_1)
        db.execute("INSERT INTO meta VALUES ('settings', ?)", (records.encode(Settings()),))
        for number, event in enumerate(life(), 1):
            db.execute(
                "INSERT INTO events VALUES (?, ?, ?, ?)", (number, event.time_s, event.kind, records.encode(event))
            )
            step(state, event)
            if number == snapshot_at:
                state.settings = settings
                db.execute("INSERT INTO snapshots VALUES (?, ?)", (number, records.encode(state)))
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


def test_a_damaged_row_of_version_2_stays_damaged(path):
    with sqlite3.connect(path) as db:
        db.executescript(Path(__file__).with_name("version_2.sql").read_text())
        db.execute("UPDATE events SET data = replace(data, 'solved', 'sulved') WHERE id = 40")
    db.close()
    with pytest.raises(StoreError, match="event 40"):
        Journal(path).load(Settings())
