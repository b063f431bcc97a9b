"""The command line. `commands` lists the commands; each lives in a module of its own, imported when it is run."""

from __future__ import annotations

import sys

import typer


def _new_app() -> typer.Typer:
    new = typer.Typer(
        name="offcut",
        help="Train neural networks on the nodes that a batch queue cannot fill.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
    )
    # Without a callback, typer takes an app with one command for that command.
    new.callback()(lambda: None)
    return new


#: All commands, once `commands.register` has added them: for documentation.
app = _new_app()


def main() -> None:
    """Run the command line: exit 0 on success, 2 on bad usage or input, 1 on failure; no traceback is shown."""
    from offcut.cli import commands
    from offcut.cli.error_report import report

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # do not fail on characters that the terminal cannot show
    this = _new_app()
    commands.register(this, only=sys.argv[1] if len(sys.argv) > 1 else "")
    try:
        code = this(standalone_mode=False)
    except Exception as error:
        code = report(error, sys.argv[1:])
    raise SystemExit(code or 0)
