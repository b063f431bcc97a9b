"""`offcut logs`: the output of a job's workers, byte for byte."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from offcut.cli.connection import connect, job_path
from offcut.cli.options import JobArgument, JsonOption, StateOption
from offcut.cli.output import line, print_json
from offcut.errors import InputError
from offcut.wire.client import Client

#: At most this much of the end of a log is read, however long its lines are; and this much at a time.
_MOST_BYTES = 8 << 20
_BLOCK_BYTES = 64 << 10
#: While following: how often to look for new output, and how often to ask whether the job has ended.
_LOOK_S = 0.2
_ASK_S = 1.0
_ENDED = ("finished", "failed", "cancelled")


def logs(
    job: JobArgument,
    worker: Annotated[str | None, typer.Option(help="Only workers whose name starts with this (n03).")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="Only the last lines of each log.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new output until the job has ended.")] = False,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Show the output of a job's workers, the newest worker last: the same bytes, escape sequences included.

    Examples: `offcut logs digits -n 20`, `offcut logs digits -f`
    """
    if json and follow:
        raise InputError("logs: --json is one document, and --follow has no end.", next_step="Give one of them.")
    with connect(state) as controller:
        directory = Path(controller.get(job_path(job, "directory"))["directory"]) / "logs"
        if json:
            tails = [(path, tail(path, lines)) for path in _logs(directory, worker)]
            print_json([{"worker": path.stem, "lines": _split(data)} for path, data in tails])
            return
        out = _Out()
        read = _show_ends(directory, worker, lines, out)
        if follow:
            _follow(controller, job, directory, worker, read, out)
        elif not read:
            line("No worker has printed anything yet.")


def _split(data: bytes) -> list[str]:
    return data.removesuffix(b"\n").decode(errors="replace").split("\n") if data else []


class _Out:
    """Standard output in bytes, with a heading where another log begins."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._out: BinaryIO = sys.stdout.buffer
        self._log: Path | None = None
        self._at_line_start = True

    def write(self, log: Path, data: bytes) -> None:
        if not data:
            return
        if log != self._log:
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


def _show_ends(directory: Path, worker: str | None, lines: int, out: _Out) -> dict[Path, int]:
    """Print the end of each log; returns the position up to which each has been read."""
    read: dict[Path, int] = {}
    for path in _logs(directory, worker):
        with path.open("rb") as file:
            read[path] = file.seek(0, 2)
            out.write(path, _tail(file, read[path], lines))
    return read


def _follow(
    controller: Client, job: str, directory: Path, worker: str | None, read: dict[Path, int], out: _Out
) -> None:
    asked_s, ended = 0.0, False
    try:
        while True:
            if time.monotonic() - asked_s >= _ASK_S:
                asked_s, ended = time.monotonic(), controller.get(job_path(job))["state"] in _ENDED
            for path in _logs(directory, worker):
                for data in _new(path, read):
                    out.write(path, data)
            if ended:
                return
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        return


def _new(path: Path, read: dict[Path, int]) -> Iterator[bytes]:
    """Yield what was written since the last read, a block at a time; from the start if the file became shorter."""
    with path.open("rb") as file:
        at = read.get(path, 0)
        file.seek(at if at <= file.seek(0, 2) else 0)
        while data := file.read(_BLOCK_BYTES):
            yield data
            read[path] = file.tell()
