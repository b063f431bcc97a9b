"""How a command that could not do what it was asked says so: one sentence, the next step, an exit code."""

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

#: What typer raises for a command line that it cannot read; some versions bring their own copy of click.
UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])


def report(error: Exception, arguments: list[str]) -> int:
    """Say what went wrong, and return the exit code.

    With --json the one document on standard output is `{"error": ..., "next_step": ...}`; else the sentence goes to
    standard error.
    """
    if type(error).__name__ == "NoArgsIsHelpError":
        cast(Any, error).show()
        return 2
    said = _as_ours(error)
    if wants_json(arguments):
        print_json({"error": said.what, "next_step": said.next_step})
    else:
        sys.stderr.write(visible(f"offcut: {said}") + "\n")
    return said.exit_code


def wants_json(arguments: list[str]) -> bool:
    """Whether --json is among the command's own options: what follows `--` is a script's."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def _as_ours(error: Exception) -> OffcutError:
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
        next_step=f"Please report it with {_written_down(error)}, which says where it happened.",
    )


def _written_down(error: Exception) -> str:
    """The file that has the traceback."""
    handle, path = tempfile.mkstemp(prefix="offcut-defect-", suffix=".txt")
    with os.fdopen(handle, "w", errors="backslashreplace") as file:
        traceback.print_exception(error, file=file)
    return path


def _usage(error: Any) -> InputError:
    """A command line that cannot be read, with what to write instead."""
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
