"""The connection of a command to the controller."""

from __future__ import annotations

from pathlib import Path

from offcut.cli.output import remark
from offcut.client.controller import Controller
from offcut.client.controller import connect as connect_client


def connect(state: Path | None) -> Controller:
    """Return the controller whose state directory is `state`; None: the default directory."""
    return connect_client(state, say=remark)
