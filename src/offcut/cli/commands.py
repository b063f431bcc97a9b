"""Which command lives where."""

from __future__ import annotations

import typer

from offcut.cli.plan import plan
from offcut.cli.profile import profile


def register(app: typer.Typer) -> None:
    """Add every command to `app`."""
    app.command()(plan)
    app.command()(profile)
