"""The logs of a job's workers, and the last lines of each."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

#: At most this much of the end of a log is read, however long its lines are; and this much at a time.
_MOST_BYTES = 8 << 20
_BLOCK_BYTES = 64 << 10


def worker_logs(directory: Path, worker: str | None) -> list[Path]:
    """Return the workers' logs, the one that was written to last at the end.

    Args:
        directory: where the logs are.
        worker: only those whose names start with this; None: all.
    """
    found = []
    for path in directory.glob("*.log"):
        if worker is None or path.name.startswith(worker):
            try:
                found.append((path.stat().st_mtime, path))
            except FileNotFoundError:
                continue  # removed since
    return [path for _, path in sorted(found)]


def read_tail(file: BinaryIO, end: int, lines: int) -> bytes:
    """Return the last lines of the first `end` bytes of a file, read from their end."""
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


def tail(path: Path, lines: int) -> bytes:
    """Return the last lines of a file, read from its end."""
    with path.open("rb") as file:
        return read_tail(file, file.seek(0, 2), lines)


def last_lines(log: Path, lines: int) -> list[str]:
    """Return the last lines of a log as text."""
    data = tail(log, lines)
    return data.removesuffix(b"\n").decode(errors="replace").split("\n") if data else []
