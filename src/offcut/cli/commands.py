"""Which command lives where."""

from __future__ import annotations

import typer

from offcut.cli.plan import plan


def register(app: typer.Typer) -> None:
    """Add every command to `app`."""
    app.command()(plan)

    # A lone command would take the place of the group; a callback keeps `offcut plan` a command of its own.
    @app.callback()
    def _root() -> None:
        pass
