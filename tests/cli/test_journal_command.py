"""`offcut journal check` says what is wrong; `repair` saves what can be read and keeps the rest."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offcut.control import Settings, State, step
from offcut.model import Job, Sizes
from offcut.model import events as ev
from offcut.service.paths import StatePaths
from offcut.store import Journal
from offcut.store.migrations import VERSION

JOB = Job(id="a-1", name="a", command=("x",), sizes=Sizes((1, 2)))
EVENTS: list[ev.Event] = [
    ev.JobSubmitted(time_s=1.0, job=JOB),
    *(ev.NodesChanged(time_s=2.0 + i, offered=(ev.Offer(f"n{i}"),)) for i in range(19)),
]


def written(root: Path, *, snapshot_at: int = 0) -> list[State]:
    """Write a journal of 20 events. Return the state after each number of them."""
    paths = StatePaths(root)
    paths.prepare()
    book = Journal(paths.journal)
    states = [book.load(Settings())]
    state = book.fold()
    for event in EVENTS:
        book.append(state.event_id + 1, event)
        step(state, event)
        states.append(book.fold())
        if state.event_id == snapshot_at:
            book.snapshot(state)
    book.close()
    return states


def change(root: Path, *commands: str) -> None:
    with sqlite3.connect(root / "journal.sqlite") as db:
        for command in commands:
            assert db.execute(command).rowcount != 0, command
    db.close()


@pytest.fixture
def journal(completed: Callable) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`journal(VERB, ROOT, *OPTIONS)` runs `offcut journal VERB --state ROOT`."""
    return lambda verb, root, *options: completed("journal", verb, "--state", root, *options)


@pytest.fixture
def as_json(journal: Callable) -> Callable[[str, Path, int], dict[str, Any]]:
    """`as_json(VERB, ROOT, CODE)` returns what the command prints with `--json`; it ends with CODE."""

    def run(verb: str, root: Path, code: int) -> dict[str, Any]:
        done = journal(verb, root, "--json")
        assert done.returncode == code, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    return run


def load(root: Path) -> State:
    book = Journal(root / "journal.sqlite")
    try:
        return book.load(Settings())
    finally:
        book.close()


def test_a_whole_journal(journal, as_json, tmp_path):
    written(tmp_path, snapshot_at=8)
    before = (tmp_path / "journal.sqlite").read_bytes()
    done = journal("check", tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].endswith(
        f"journal.sqlite: version {VERSION}, 20 events, a snapshot after event 8"
    )
    assert done.stdout.splitlines()[1:] == ["Jobs: 1 waiting", "It is whole."]
    shown = as_json("repair", tmp_path, 0)
    assert (shown["whole"], shown["loads"], shown["events"], shown["backup"]) == (True, True, 20, None)
    assert (tmp_path / "journal.sqlite").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs", "journal.sqlite", "lock"]


def test_the_readable_prefix_is_saved(journal, as_json, tmp_path):
    states = written(tmp_path)
    change(tmp_path, "UPDATE events SET data = replace(data, 'n9', 'n8') WHERE id = 11")
    shown = as_json("check", tmp_path, 1)
    assert shown["faults"] == ["Event 11 is not what was written."]
    assert (shown["loads"], shown["events"], shown["written"]) == (False, 10, 20)
    assert "The first 10 of 20 events can be saved." in shown["words"]
    done = journal("repair", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "It holds the first 10 events now." in done.stdout
    assert "10 after them are lost." in done.stdout
    assert load(tmp_path) == states[10]
    (backup,) = tmp_path.glob("journal.damaged-*")
    with sqlite3.connect(backup / "journal.sqlite") as db:
        assert db.execute("SELECT count(*) FROM events").fetchone() == (20,)
    db.close()
    assert journal("check", tmp_path).returncode == 0


def test_a_snapshot_carries_over_damage_before_it(as_json, tmp_path):
    states = written(tmp_path, snapshot_at=8)
    change(tmp_path, "UPDATE events SET data = '{}' WHERE id = 3")
    shown = as_json("check", tmp_path, 1)
    assert shown["loads"]
    assert shown["faults"] == ["Event 3 is not what was written."]
    as_json("repair", tmp_path, 0)
    assert load(tmp_path) == states[20]
    assert as_json("check", tmp_path, 0)["whole"]


def test_a_damaged_snapshot_is_dropped(as_json, tmp_path):
    states = written(tmp_path, snapshot_at=8)
    change(tmp_path, "UPDATE snapshots SET data = '{}'")
    shown = as_json("check", tmp_path, 1)
    assert shown["loads"]
    assert shown["faults"] == ["The snapshot after event 8 is not what was written."]
    shown = as_json("repair", tmp_path, 0)
    assert "The snapshot was dropped: the events lead to the same state." in shown["words"]
    assert load(tmp_path) == states[20]


@pytest.mark.parametrize("size", [0.4, 0.7])
def test_a_truncated_journal_is_repaired_or_refused(journal, tmp_path, size):
    """Depending on where it was cut, a state that was there once is read, or a sentence says that none can be."""
    states = written(tmp_path)
    file = tmp_path / "journal.sqlite"
    with file.open("r+b") as opened:
        opened.truncate(int(size * file.stat().st_size))
    assert journal("check", tmp_path).returncode == 1
    done = journal("repair", tmp_path)
    assert "Traceback" not in done.stderr
    if done.returncode == 0:
        assert load(tmp_path) in states
    else:
        assert "can be saved" in done.stderr


def test_repair_of_a_file_that_is_not_a_journal_fails(journal, tmp_path):
    written(tmp_path)
    (tmp_path / "journal.sqlite").write_text("no journal at all\n" * 1000)
    assert journal("check", tmp_path).returncode == 1
    done = journal("repair", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("offcut: Nothing of the journal ")
    assert (tmp_path / "journal.sqlite").read_text().startswith("no journal at all")


def test_bad_usage(journal, tmp_path):
    done = journal("check", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "There is no journal at" in done.stderr
    written(tmp_path)
    change(tmp_path, "UPDATE meta SET value = '99' WHERE key = 'version'")
    for verb in ("check", "repair"):
        done = journal(verb, tmp_path)
        assert done.returncode == 2
        assert "which a newer offcut writes" in done.stderr


def test_a_controller_runs(journal, as_json, tmp_path):
    """While a controller runs, the journal can be checked but not repaired."""
    written(tmp_path)
    with StatePaths(tmp_path).take_lock():
        assert as_json("check", tmp_path, 0)["whole"]
        done = journal("repair", tmp_path)
    assert done.returncode == 2
    assert "belongs to a running controller" in done.stderr
