"""Checks whether a journal is whole, and saves what can be read of a damaged one."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from offcut.control import State
from offcut.errors import InputError, OffcutError, StoreError
from offcut.store import migrations, salvage
from offcut.store.journal import Journal
from offcut.store.last_event import LastEvent, missing_tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`faults` are sentences on what is wrong, `words` on what was or can be done."""

    journal: Path
    version: int
    #: The last event that can be read, with the state that it leads to; and the last that was written, as far as known.
    events: int
    written: int
    snapshot: int | None
    #: Events that were passed over because they could not be answered.
    skipped: list[int]
    #: How many jobs are in which state.
    jobs: dict[str, int]
    #: Whether a controller can start from it.
    loads: bool
    faults: list[str]
    words: list[str]
    #: Where the damaged files were put.
    backup: Path | None = None


def check(journal: Path, *, live: bool) -> Report:
    """Read all of the journal, in a copy. `live`: a controller may be writing to it.

    Raises StoreError where it cannot be copied, or a newer offcut wrote it.
    """
    # Before the copy is made: a controller may be writing events.
    noted = LastEvent(journal).read()
    with copied(journal, live=live) as copy:
        return _checked(journal, copy, _look(journal, copy), noted)


@contextmanager
def copied(journal: Path, *, live: bool) -> Iterator[Path]:
    """Yield a copy of a journal, which is removed after the block.

    Args:
        journal: the journal.
        live: a controller may be writing to it.

    Raises:
        StoreError: It cannot be copied.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="journal-copy-", dir=journal.parent) as place:
            yield salvage.copy(journal, Path(place), live=live)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"The journal {journal} cannot be copied: {error}.", next_step="Is the disk full?") from None


def _look(journal: Path, copy: Path) -> salvage.Findings:
    found = salvage.look(copy)
    if found.version > migrations.VERSION:
        raise StoreError(
            f"The journal {journal} has version {found.version}, which a newer offcut writes; this one reads versions "
            f"up to {migrations.VERSION}.",
            next_step="Run the newer offcut.",
        )
    return found


def _checked(journal: Path, copy: Path, found: salvage.Findings, noted: int = 0) -> Report:
    """`noted`: the last event that was written, as noted beside the journal."""
    faults, words = list(dict.fromkeys(found.faults)), []
    state: State | None = None
    try:
        with closing(Journal(copy)) as book:
            state = book.fold()
            words += [f"{remark.rstrip('.')}." for remark in book.remarks]
    except InputError as error:  # of the environment: the journal may be whole
        return _report(
            journal,
            found,
            None,
            loads=False,
            faults=[*faults, error.what.replace(str(copy), str(journal))],
            words=[error.next_step],
        )
    except OffcutError as error:
        if not faults:
            faults.append(error.what)
    if state is None:
        words.append("No controller can start from it. Save what can be read with: offcut journal repair")
        if found.end:
            words.append(f"The first {found.end} of {max(found.last, found.end)} events can be saved.")
    elif faults:
        words.append("A controller can start from it; offcut journal repair writes it again without what is damaged.")
    if noted > found.last:
        faults.append(missing_tail(found.last, noted))
        found.last = noted
        if state is not None and len(faults) == 1:
            words.append("A controller can start from it: agents that live tell what they run.")
    return _report(journal, found, state, loads=state is not None, faults=faults, words=words)


def _report(
    journal: Path,
    found: salvage.Findings,
    state: State | None,
    *,
    loads: bool,
    faults: list[str],
    words: list[str],
    backup: Path | None = None,
) -> Report:
    return Report(
        journal=journal,
        version=found.version,
        events=found.end if state is None else state.event_id,
        written=max(found.last, found.end),
        snapshot=found.snapshot,
        skipped=[] if state is None else [skipped.event_id for skipped in state.skipped],
        jobs={} if state is None else dict(Counter(job.phase for job in state.jobs.values())),
        loads=loads,
        faults=faults,
        words=words,
        backup=backup,
    )


def repair(journal: Path, now: datetime) -> Report:
    """Replace a damaged journal by one of all that can be read, and keep the damaged files.

    Call it with the state directory's lock. Raises OffcutError where nothing can be saved; then nothing has changed.
    """
    with copied(journal, live=False) as copy:
        found = _look(journal, copy)
        if not found.faults:
            LastEvent(journal).forget()
            # Read again, because the check may have migrated its copy.
            return _checked(journal, copy, found)
        if not found.end:
            raise OffcutError(
                f"Nothing of the journal {journal} can be saved: {' '.join(found.faults)}",
                next_step="Restore it from a copy, or remove it to start over: new jobs get new directories.",
            )
        new = copy.with_name("new.sqlite")
        state = salvage.rebuild(copy, found, new)
        backup = journal.parent / f"journal.damaged-{now:%Y%m%d-%H%M%S}"
        with new.open("rb") as file:
            os.fsync(file.fileno())
        backup.mkdir()
        for suffix in ("", "-wal", "-shm"):
            if os.path.exists(f"{journal}{suffix}"):
                os.rename(f"{journal}{suffix}", f"{backup / journal.name}{suffix}")
        os.rename(new, journal)
        LastEvent(journal).forget()
    lost = max(found.last, found.end) - found.end
    words = [f"It holds the first {found.end} events now."]
    if lost:
        words.append(f"{lost} after them are lost. Agents that still run will report their workers.")
    if found.snapshot is None and any("napshot" in fault for fault in found.faults):
        words.append("The snapshot was dropped: the events lead to the same state.")
    words.append(f"The damaged files are in {backup}.")
    return _report(journal, found, state, loads=True, faults=found.faults, words=words, backup=backup)
