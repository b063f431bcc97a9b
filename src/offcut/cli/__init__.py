"""The command line. Each command lives in a module of its own that registers itself on `app`."""

from __future__ import annotations

import sys

import typer

app = typer.Typer(
    name="offcut",
    help="Train neural networks on the nodes that a batch queue cannot fill.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def main() -> None:
    """Run the command line: exit 0 on success, 2 on bad usage or input, 1 on failure; no traceback is shown."""
    from offcut.cli import commands
    from offcut.cli.error_report import report

    if not app.registered_commands:  # register once per process
        commands.register(app)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # do not fail on characters that the terminal cannot show
    try:
        code = app(standalone_mode=False)
    except Exception as error:
        code = report(error, sys.argv[1:])
    raise SystemExit(code or 0)
