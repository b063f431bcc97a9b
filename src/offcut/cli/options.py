"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StateOption = Annotated[
    Path | None,
    typer.Option("--state", help="The controller's state directory (default: $OFFCUT_STATE).", show_default=False),
]
JobArgument = Annotated[str, typer.Argument(help="The job's id or name.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else.")]
