"""`offcut logs`: the output of a job's workers, byte for byte."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from offcut.cli.connection import ask_again, connect, job_path
from offcut.cli.job_end import has_ended
from offcut.cli.log_follow import LogFollower
from offcut.cli.options import JobArgument, JsonOption, StateOption
from offcut.cli.output import line, print_json
from offcut.errors import InputError

#: At most this much of the end of a log is read, however long its lines are; and this much at a time.
_MOST_BYTES = 8 << 20
_BLOCK_BYTES = 64 << 10
#: While following: how often to look for new output, and how often to ask whether the job has ended.
_LOOK_S = 0.1
_ASK_S = 1.0
#: After the job's end, its last workers may still print: nothing must have come for this long.
_SETTLE_S = 1.0


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
        told = controller.get(job_path(job, "directory"))
        directory, path = Path(told["directory"]) / "logs", job_path(told["id"])
        if json:
            tails = [(log, tail(log, lines)) for log in _logs(directory, worker)]
            print_json([{"worker": log.stem, "lines": _split(data)} for log, data in tails])
            return
        out = LogOutput(label=label)
        read = _show_ends(directory, worker, lines, out)
        if follow:
            with suppress(KeyboardInterrupt):
                follow_logs(
                    lambda: has_ended(ask_again(lambda: controller.get(path))),
                    LogFollower(directory, worker, read),
                    out,
                )
        elif not read:
            line("No worker has printed anything yet.")


def _split(data: bytes) -> list[str]:
    return data.removesuffix(b"\n").decode(errors="replace").split("\n") if data else []


class LogOutput:
    """Standard output in bytes, with a heading where another log begins; with `label`, the worker before each line."""

    def __init__(self, *, label: bool = False) -> None:
        self._label = label
        sys.stdout.flush()
        self._out: BinaryIO = sys.stdout.buffer
        self._log: Path | None = None
        self._at_line_start = True

    def write(self, log: Path, data: bytes) -> None:
        if not data:
            return
        if self._label:
            lines = data.removesuffix(b"\n").split(b"\n")
            data = b"".join(b"%s: %s\n" % (log.stem.encode(), part) for part in lines)
        elif log != self._log:
            heading = f"==> {log.stem} <==\n".encode()
            self._out.write(heading if self._at_line_start else b"\n" + heading)
            self._log = log
        self._out.write(data)
        self._out.flush()
        self._at_line_start = data.endswith(b"\n")


def _logs(directory: Path, worker: str | None) -> list[Path]:
    """Return the workers' logs, the one that was written to last at the end."""
    found = []
    for path in directory.glob("*.log"):
        if worker is None or path.name.startswith(worker):
            try:
                found.append((path.stat().st_mtime, path))
            except FileNotFoundError:
                continue  # removed since
    return [path for _, path in sorted(found)]


def tail(path: Path, lines: int) -> bytes:
    """Return the last lines of a file, read from its end."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        return _tail(file, end, lines)


def _tail(file: BinaryIO, end: int, lines: int) -> bytes:
    blocks: list[bytes] = []
    start, found = end, 0
    while start > 0 and end - start < _MOST_BYTES and found <= lines:
        size = min(_BLOCK_BYTES, start)
        start -= size
        file.seek(start)
        blocks.append(file.read(size))
        found += blocks[-1].count(b"\n")
    # A line end that is the last byte ends the last line, it begins no other.
    data = b"".join(reversed(blocks))
    at = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        if (at := data.rfind(b"\n", 0, at)) < 0:
            return data
    return data[at + 1 :]


def _show_ends(directory: Path, worker: str | None, lines: int, out: LogOutput) -> dict[Path, int]:
    """Print the end of each log; returns the position up to which each has been read."""
    read: dict[Path, int] = {}
    for path in _logs(directory, worker):
        with path.open("rb") as file:
            read[path] = file.seek(0, 2)
            out.write(path, _tail(file, read[path], lines))
    return read


def follow_logs(has_ended: Callable[[], bool], follower: LogFollower, out: LogOutput) -> None:
    """Print what a job's workers print until the job has ended and nothing more comes.

    Args:
        has_ended: asks whether the job has ended.
        follower: reads the logs.
        out: where the lines go.
    """
    asked_s, ended_s, ended = 0.0, 0.0, False
    while not ended or time.monotonic() < ended_s + _SETTLE_S:
        if not ended and time.monotonic() - asked_s >= _ASK_S:
            ended = has_ended()
            asked_s = ended_s = time.monotonic()
        for path, data in follower.new_lines():
            out.write(path, data)
            ended_s = time.monotonic()
        time.sleep(_LOOK_S)
    for path, data in follower.new_lines(at_end=True):
        out.write(path, data)
