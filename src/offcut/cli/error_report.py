"""Reports the error of a command: one sentence, the next step, and an exit code."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import traceback
from typing import Any, cast

import typer

from offcut.cli.output import print_json
from offcut.errors import InputError, OffcutError
from offcut.plaintext import visible

#: The exception of typer for an invalid command line; some versions of typer contain their own copy of click.
UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])


def report(error: Exception, arguments: list[str]) -> int:
    """Print an error and return the exit code.

    With --json, the one document on standard output is `{"error": ..., "next_step": ...}`; otherwise the sentence goes
    to standard error.
    """
    if type(error).__name__ == "NoArgsIsHelpError":
        cast(Any, error).show()
        return 2
    shown = _as_offcut_error(error)
    if wants_json(arguments):
        print_json({"error": shown.what, "next_step": shown.next_step})
    else:
        sys.stderr.write(visible(f"offcut: {shown}") + "\n")
    return shown.exit_code


def wants_json(arguments: list[str]) -> bool:
    """Return True if --json is one of the command's own options; arguments after `--` belong to a script."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def _as_offcut_error(error: Exception) -> OffcutError:
    if isinstance(error, OffcutError):
        return error
    if isinstance(error, UsageError):
        return _usage(error)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return OffcutError(f"{where}{error.strerror}.", next_step="Check the path, its permissions and the disk.")
    if isinstance(error, typer.Abort):
        return OffcutError("Interrupted.")
    return OffcutError(
        f"This is a defect of offcut: {type(error).__name__}: {error}.",
        next_step=f"Please report it with {_write_traceback(error)}, which says where it happened.",
    )


def _write_traceback(error: Exception) -> str:
    """Write the traceback to a temporary file and return its path."""
    handle, path = tempfile.mkstemp(prefix="offcut-defect-", suffix=".txt")
    with os.fdopen(handle, "w", errors="backslashreplace") as file:
        traceback.print_exception(error, file=file)
    return path


def _usage(error: Any) -> InputError:
    """Turn a usage error of typer into a sentence with the right form."""
    context = error.ctx
    if context is None:
        return InputError(f"{error.format_message().rstrip('.')}.", next_step="See: offcut --help")
    command = context.command_path
    options = {word.lstrip("-"): word for parameter in context.command.params for word in parameter.opts}
    next_step = f"See: {command} --help"
    unknown = getattr(error, "option_name", "") if type(error).__name__ == "NoSuchOption" else ""
    if unknown and context.info_name == "submit":
        next_step = f"Options of the script come after --, as in: {command} train.py -- {unknown} ..."
    extra = re.search(r"\(([^()]+)\)$", error.message)  # "Got unexpected extra arguments (sizes 1:4)"
    for word in extra[1].split() if extra else ():
        if options.get(word, "").startswith("--"):
            next_step = f"Did you mean the option {options[word]}?"
            break
    what = command.partition(" ")[2]
    sentence = f"{error.format_message().rstrip('.')}."
    return InputError(f"{what}: {sentence}" if what else sentence, next_step=next_step)
