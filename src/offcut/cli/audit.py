"""`offcut audit`: who asked the controller to change something."""

from __future__ import annotations

import pwd
from datetime import datetime
from typing import Annotated, Any

import typer

from offcut.cli.options import JsonOption, StateOption
from offcut.cli.output import Sheet, line, print_json, print_table


def audit(
    last: Annotated[int, typer.Option(min=1, help="Show this many requests, the newest.")] = 50,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Show who asked the controller to change something, when, and what became of it; also while none runs.

    Example: `offcut audit --last 20`
    """
    from collections import deque

    from offcut.service.audit import AuditLog
    from offcut.service.paths import StatePaths, default_state_dir

    paths = StatePaths(state or default_state_dir())
    entries = list(deque(AuditLog(paths.audit, paths.older_audit).entries(), maxlen=last))
    if json:
        print_json(entries)
        return
    if not entries:
        line("No request to change something was recorded.")
        return
    sheet = Sheet("time", "who", "by", "what", "answer", "event", right=("answer", "event"))
    for entry in entries:
        sheet.add_row(*_row(entry))
    print_table(sheet)


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    caused = entry.get("events") or []
    what = "; ".join(f"{event['kind'].replace('_', ' ')} {event['subject']}".strip() for event in caused)
    return (
        f"{datetime.fromtimestamp(entry['time_s']):%Y-%m-%d %H:%M:%S}",
        _who(entry),
        str(entry["role"]) + (f", process {entry['pid']}" if entry.get("pid") else ""),
        what or f"{entry['method']} {entry['path']}".strip(),
        "done" if entry["status"] == 200 else f"refused ({entry['status']})",
        ", ".join(str(event["number"]) for event in caused),
    )


def _who(entry: dict[str, Any]) -> str:
    """Return the user's name, and the name of the login where that is another."""
    if entry.get("uid") is None:
        return str(entry.get("address") or "not known")
    user, login = entry["uid"], entry.get("login_uid")
    return _name(user) + (f" (logged in as {_name(login)})" if login is not None and login != user else "")


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
