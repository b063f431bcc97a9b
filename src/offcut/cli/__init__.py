"""The command line. Each command lives in a module of its own that registers itself on `app`."""

from __future__ import annotations

import json
import sys

import typer

from offcut.errors import OffcutError

app = typer.Typer(
    name="offcut",
    help="Train neural networks on the nodes that a batch queue cannot fill.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def main() -> None:
    """Run the command line: exit 0 on success, 2 on bad usage or input, 1 on failure; never a traceback of ours."""
    from offcut.cli import commands

    commands.register(app)
    try:
        app()
    except OffcutError as error:
        if "--json" in sys.argv:
            sys.stderr.write(json.dumps({"error": error.what, "next_step": error.next_step}) + "\n")
        else:
            sys.stderr.write(f"offcut: {error}\n")
        raise SystemExit(error.exit_code) from None
