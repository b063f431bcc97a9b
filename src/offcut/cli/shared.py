"""What the commands have in common: options, the connection, figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from offcut.wire.client import Client

StateOption = Annotated[
    Path | None,
    typer.Option("--state", help="The controller's state directory (default: $OFFCUT_STATE).", show_default=False),
]
JobArgument = Annotated[str, typer.Argument(help="The job's id or name.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else.")]


def client(state: Path | None) -> Client:
    """A connection to the controller of `state`."""
    from offcut.service.paths import StatePaths, default_state_dir

    return Client(StatePaths(state or default_state_dir()).socket)


def job_path(job: str, *rest: str) -> str:
    """The API's path of a job, or of what is under it, whatever characters its name has."""
    # A path's dots would be taken for steps up.
    return "/".join(("/v1/jobs", quote(job, safe="").replace(".", "%2E"), *rest))


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
