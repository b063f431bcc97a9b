"""A damaged journal leads to a state that was written, or to an error; never to a traceback or another state."""

from __future__ import annotations

import random
import shutil
import sqlite3
import sys
from datetime import datetime
from pathlib import Path

import pytest
from books import life, written

from offcut.advisor import curve_models
from offcut.control import Settings, State
from offcut.errors import InputError, StoreError
from offcut.model import events as ev
from offcut.store import Journal, repair

STEP = sys.modules["offcut.control.step"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def change(path: Path, *commands: str) -> None:
    with sqlite3.connect(path) as db:
        for command in commands:
            assert db.execute(command).rowcount != 0, command
    db.close()


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        ("UPDATE events SET data = replace(data, 'note', 'nota') WHERE id = 5", "event 5 is not what was written"),
        ("UPDATE events SET data = '{\"kin' WHERE id = 5", "event 5 is not what was written"),
        ("UPDATE events SET data = (SELECT data FROM events WHERE id = 5) WHERE id = 7", "event 7 is not what was"),
        ("DELETE FROM events WHERE id = 6", "event 6 is missing"),
        ('UPDATE settings SET data = \'{"hold_s": "long"}\'', "the settings cannot be read"),
        ("UPDATE meta SET value = 'x' WHERE key = 'version'", "it does not say its version"),
        ("ALTER TABLE snapshots RENAME TO other", "no such table: snapshots"),
        ("UPDATE events SET data = CAST(x'ff' AS TEXT) WHERE id = 5", "Could not decode"),
    ],
)
def test_an_error_names_the_place_and_the_next_step(path, damage, fault):
    written(path, life())
    change(path, damage)
    with pytest.raises(StoreError) as caught:
        Journal(path).load(Settings())
    assert caught.value.what.startswith(f"The journal {path} is damaged: ")
    assert fault in caught.value.what
    assert "offcut journal repair" in caught.value.next_step
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE snapshots SET data = '{}'",
        "UPDATE snapshots SET data = replace(data, 'running', 'finished'), checksum = checksum + 1",
        "DELETE FROM snapshots",
    ],
)
def test_a_damaged_snapshot_costs_nothing_while_all_events_are_there(path, damage):
    state = written(path, life(), snapshot_at=10)
    change(path, damage)
    book = Journal(path)
    assert book.load(Settings()) == state
    assert all("snapshot after event 10" in remark for remark in book.remarks)


def test_a_damaged_snapshot_without_the_first_events_is_told(path):
    written(path, life(), snapshot_at=10)
    change(path, "UPDATE snapshots SET data = '{}'", "DELETE FROM events WHERE id < 5")
    with pytest.raises(StoreError, match="the snapshot after event 10 is not what was written"):
        Journal(path).load(Settings())


def test_events_before_the_snapshot_do_not_matter(path):
    state = written(path, life(), snapshot_at=10)
    change(path, "DELETE FROM events WHERE id <= 10")
    assert Journal(path).load(Settings()) == state


@pytest.mark.parametrize("what", ["cut short", "a bit flipped", "a page zeroed"])
@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_any_damage_to_its_files_is_survived(path, tmp_path, what, suffix):
    """Wherever a file is damaged: the state is one that was there once, or a StoreError tells."""
    events = life(nodes=8)
    seen = [State(settings=Settings())]
    (tmp_path / "good").mkdir()
    good = tmp_path / "good" / "journal.sqlite"
    book = Journal(good)
    if not suffix:
        book._db.execute("PRAGMA journal_mode=DELETE")
    state = book.load(Settings())
    for event in events:
        book.append(state.event_id + 1, event)
        STEP.step(state, event)
        seen.append(Journal.fold(book))
    book.snapshot(state)
    files = {
        name: (good.parent / name).read_bytes() for name in ("journal.sqlite", "journal.sqlite-wal")[: 1 + bool(suffix)]
    }
    book.close()
    choose = random.Random(1)
    for i in range(25):
        place = tmp_path / str(i)
        place.mkdir()
        for name, data in files.items():
            (place / name).write_bytes(data)
        victim = place / f"journal.sqlite{suffix}"
        data = bytearray(victim.read_bytes())
        at = choose.randrange(len(data))
        if what == "cut short":
            del data[at:]
        elif what == "a bit flipped":
            data[at] ^= 1 << choose.randrange(8)
        else:
            data[at // 4096 * 4096 :][:4096] = b""
            data = data[: at // 4096 * 4096] + bytes(4096) + data[at // 4096 * 4096 + 4096 :]
        victim.write_bytes(data)
        try:
            damaged = Journal(place / "journal.sqlite")
            assert damaged.load(Settings()) in seen
            damaged.story("a-1")
            list(damaged.replay())
            damaged.close()
        except StoreError:
            pass
        shutil.rmtree(place)


@pytest.mark.parametrize("at", [0.6, 0.9])
def test_a_bit_flipped_in_the_log_is_noticed(path, at):
    """SQLite takes what comes before the damaged page for all that there is."""
    killed = path.parent / "killed"
    killed.mkdir()
    book = Journal(path)
    state = book.load(Settings())
    for event in life():
        book.append(state.event_id + 1, event)
        STEP.step(state, event)
    for found in path.parent.glob("journal.sqlite*"):
        shutil.copy(found, killed)
    book.close()
    assert not list(path.parent.glob("journal.sqlite-*")), "closed in good order, it leaves nothing beside it"
    log = killed / "journal.sqlite-wal"
    data = bytearray(log.read_bytes())
    data[int(at * len(data))] ^= 8
    log.write_bytes(data)
    report = repair.check(killed / path.name, live=False)
    assert report.events < state.event_id
    assert report.written == state.event_id
    assert report.loads
    assert f"{state.event_id} had been written, and cannot be read any more" in report.faults[-1]
    book = Journal(killed / path.name)
    assert book.load(Settings()).event_id == report.events
    assert book.last_written() == state.event_id
    book.close()
    assert not repair.repair(killed / path.name, datetime.now()).faults, "it has been said"
    assert not repair.check(killed / path.name, live=False).faults


# -- events that cannot be answered -----------------------------------------------------------------------------------


class Raises:
    """`JobNoted` with this text raises, after it has changed the state."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
        self.text = text
        self._answer = STEP._HANDLERS[ev.JobNoted]
        monkeypatch.setitem(STEP._HANDLERS, ev.JobNoted, self)

    def __call__(self, turn, event):
        turn.state.incarnations += 1000
        turn.state.jobs["a-1"].phase = "paused"
        if event.text == self.text:
            raise ValueError("math domain error\nand more")
        turn.state.incarnations -= 1000
        turn.state.jobs["a-1"].phase = "running"


@pytest.mark.parametrize("snapshot_at", [0, 4])
def test_an_event_that_raises_is_passed_over_by_every_fold(path, monkeypatch, snapshot_at):
    raises = Raises(monkeypatch, "never")
    written(path, life(), snapshot_at=snapshot_at)
    raises.text = "note 2"
    book = Journal(path)
    state = book.load(Settings())
    assert [(skipped.event_id, skipped.kind, skipped.job) for skipped in state.skipped] == [(9, "job_noted", "a-1")]
    assert state.skipped[0].reason == "ValueError: math domain error"
    assert state.incarnations == 0
    assert state.event_id == len(life())
    assert "event 9 (job_noted) could not be answered" in book.remarks[0]
    raises.text = "never"  # it is mended: what was passed over then is passed over still
    again = Journal(path)
    assert again.load(Settings()) == state
    assert again.remarks == []


def test_several_that_raise(path, monkeypatch):
    raises = Raises(monkeypatch, "never")
    written(path, [*life(), ev.JobNoted(time_s=50.0, job="a-1", text="note 2")])
    raises.text = "note 2"
    assert [skipped.event_id for skipped in Journal(path).load(Settings()).skipped] == [9, 20]


def test_a_profiler_file_that_is_gone_is_told_at_the_start(path, tmp_path):
    """A fold without it would come to another state than the one in which events were answered."""
    file = tmp_path / "mine.py"
    file.write_text("def curve(evidence):\n    return {1: 1.0, 2: 1.8}\n")
    book = Journal(path)
    state = book.load(Settings(profiler=str(file)))
    for event in life():
        book.append(state.event_id + 1, event)
        STEP.step(state, event)
    book.close()
    file.unlink()
    curve_models.load.cache_clear()
    book = Journal(path)
    with pytest.raises(InputError, match=rf"written with a profiler .*: profiler file {file}: not found") as caught:
        book.load(Settings())
    assert caught.value.exit_code == 2
    assert "Put it back" in caught.value.next_step
    report = repair.check(path, live=False)
    assert not report.loads
    assert report.faults[0].startswith(f"The journal {path} was written with")
    book.snapshot(state)
    assert book.load(Settings()).event_id == state.event_id, "a snapshot needs no fold"
    book.close()
