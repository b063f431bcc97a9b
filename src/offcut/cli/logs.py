"""`offcut logs`: the output of a job's workers, byte for byte."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from offcut.cli.connection import connect
from offcut.cli.log_output import LogOutput
from offcut.cli.options import JobArgument, JsonOption, StateOption
from offcut.cli.output import line, print_json
from offcut.client.log_tail import read_tail, worker_logs
from offcut.errors import InputError


def logs(
    job: JobArgument,
    worker: Annotated[str | None, typer.Option(help="Only workers whose name starts with this (n03).")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Only the last lines of each log.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new output until the job has ended.")] = False,
    label: Annotated[bool, typer.Option("--label", "-l", help="Begin each line with its worker's name.")] = False,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Show the output of a job's workers, the newest worker last: the same bytes, escape sequences included.

    `--follow` prints the lines of all workers as they are written, over resizes and restarts of the controller.

    Examples: `offcut logs digits -n 20`, `offcut logs digits -f --label`
    """
    if json and follow:
        raise InputError("logs: --json is one document, and --follow has no end.", next_step="Give one of them.")
    with connect(state) as controller:
        shown = controller.job(job)
        if json:
            print_json([{"worker": name, "lines": tail} for name, tail in shown.logs(lines, worker).items()])
            return
        out = LogOutput(label=label)
        read = _show_ends(shown.directory() / "logs", worker, lines, out)
        if follow:
            with suppress(KeyboardInterrupt):
                for log, data in shown.follow_logs(worker, read):
                    out.write(log, data)
        elif not read:
            line("No worker has printed anything yet.")


def _show_ends(directory: Path, worker: str | None, lines: int, out: LogOutput) -> dict[Path, int]:
    """Print the end of each log; returns the position up to which each has been read."""
    read: dict[Path, int] = {}
    for path in worker_logs(directory, worker):
        with path.open("rb") as file:
            read[path] = file.seek(0, 2)
            out.write(path, read_tail(file, read[path], lines))
    return read
