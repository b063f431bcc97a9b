"""Version 3: the numbered membership of a job is called generation (version 2: epoch), and fields have new names."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from offcut.store.row_format import checksum

_KINDS = {"epoch_formed": "generation_formed", "epoch_broken": "generation_broken"}
_FIELDS = {
    "epoch": "generation",
    "epochs": "generations",
    "formed_epoch": "formed_generation",
    "failure_epoch": "failure_generation",
}
_STATE_FIELDS = {
    "asked": "open_problem",
    "standins": "standin_answers",
    "forgotten": "forgotten_incarnations",
    "aside": "set_aside",
    "knowledge": "histories",
}
_JOB_FIELDS = {
    "formed": "state_holders",
    "first": "first_member",
    "broken": "break_reason",
    "redone": "redone_steps",
}
#: Fields of a job that are in `launch` and `disk` now.
_LAUNCH_FIELDS = {"launched_s": "launched_s", "done": "finished", "fault": "failure", "excused": "excused"}
_DISK_FIELDS = {"disk": "reason", "disk_waits": "waits", "disk_again_s": "again_s"}
_PURPOSES = {"rest": "set_aside", "solve": "solve_again", "broken": "renew"}
#: Their keys are names that users and sites chose.
_BY_NAME = {"jobs", "nodes"}


def migrate(db: sqlite3.Connection) -> None:
    """Rename kinds and fields in events and snapshots. A row whose checksum is wrong stays as it is, damaged."""
    for number, kind, data, check in db.execute("SELECT id, kind, data, checksum FROM events").fetchall():
        if check == checksum(number, data):
            event = _renamed(json.loads(data))
            event["kind"] = _KINDS.get(kind, kind)
            if kind == "timer_fired":
                event["timer"] = _timer(event.pop("key"))
            text = json.dumps(event)
            renamed = (event["kind"], text, checksum(number, text), number)
            db.execute("UPDATE events SET kind = ?, data = ?, checksum = ? WHERE id = ?", renamed)
    for number, data, check in db.execute("SELECT event_id, data, checksum FROM snapshots").fetchall():
        if check == checksum(number, data):
            text = json.dumps(_new_state(_renamed(json.loads(data))))
            row = (text, checksum(number, text), number)
            db.execute("UPDATE snapshots SET data = ?, checksum = ? WHERE event_id = ?", row)


def _new_state(state: dict[str, Any]) -> dict[str, Any]:
    """Return a snapshot of version 2, whose generations are renamed already, in the form of version 3."""
    state["timers"] = [(_timer(key), at_s) for key, at_s in state["timers"].items()]
    for old, new in _STATE_FIELDS.items():
        _rename(state, old, new)
    for job in state["jobs"].values():
        _split(job)
    histories = state.get("histories")
    for history in (histories or {}).get("jobs", {}).values():
        _rename(history, "own", "observations")
    return state


def _split(job: dict[str, Any]) -> None:
    """Move what only jobs of mode `restart` have, and what is about a full disk, into parts of their own."""
    for old, new in _JOB_FIELDS.items():
        _rename(job, old, new)
    launch = {new: job.pop(old) for old, new in _LAUNCH_FIELDS.items() if old in job}
    job["launch"] = launch if job["job"].get("mode") == "restart" else None
    job["disk"] = {new: job.pop(old) for old, new in _DISK_FIELDS.items() if old in job}


def _timer(key: str) -> dict[str, Any]:
    """Return the timer that version 2 wrote as `purpose:subject` or `purpose:node:incarnation`."""
    purpose, _, subject = key.partition(":")
    incarnation = 0
    if purpose in ("ready", "retry"):
        subject, _, number = subject.rpartition(":")
        incarnation = int(number)
    if purpose == "solve":
        subject = ""
    return {"purpose": _PURPOSES.get(purpose, purpose), "subject": subject, "incarnation": incarnation}


def _rename(item: dict[str, Any], old: str, new: str) -> Any:
    """Rename a field, if it is there; return its value."""
    if old in item:
        item[new] = item.pop(old)
    return item.get(new)


def _renamed(item: Any, *, by_name: bool = False) -> Any:
    """Return the item with the fields of all objects in it renamed; `by_name`: its own keys are names, not fields."""
    if isinstance(item, list):
        return [_renamed(each) for each in item]
    if not isinstance(item, dict):
        return item
    return {
        key if by_name else _FIELDS.get(key, key): _renamed(value, by_name=key in _BY_NAME and not by_name)
        for key, value in item.items()
    }
