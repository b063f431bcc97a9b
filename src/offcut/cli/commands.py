"""Which command lives where."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add every command to `app`."""
    from offcut.cli import queue, windows

    app.command("windows")(windows.windows)
    app.command("queue")(queue.queue)
