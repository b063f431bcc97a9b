"""Which command lives where."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add every command to `app`."""
