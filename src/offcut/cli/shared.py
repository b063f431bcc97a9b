"""What the commands have in common: options, the connection, output."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from offcut.wire.client import Client

StateOption = Annotated[
    Path | None,
    typer.Option("--state", help="The controller's state directory (default: $OFFCUT_STATE).", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else.")]

console = Console()


def client(state: Path | None) -> Client:
    """A connection to the controller of `state`."""
    from offcut.service.paths import StatePaths, default_state_dir

    return Client(StatePaths(state or default_state_dir()).socket)


def print_json(document: Any) -> None:
    json.dump(document, sys.stdout, indent=2, allow_nan=False, default=str)
    sys.stdout.write("\n")


def count(number: float) -> str:
    """A figure that a person reads: 1,234 or 12.3."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def seconds(value_s: float) -> str:
    """A duration that a person reads."""
    if value_s < 120:
        return f"{value_s:.0f} s"
    if value_s < 7200:
        return f"{value_s / 60:.0f} min"
    return f"{value_s / 3600:.1f} h"
