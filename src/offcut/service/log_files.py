"""Bounds what logs take of the disk: the oldest files go first; those that are still written to are cut.

What is written while a file is cut may be lost, as with other programs that rotate logs by copying.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: The end of a file that stays when it is cut.
_KEPT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LogFile:
    name: str
    size_bytes: int
    modified_s: float
    #: Whether a process still writes to it.
    open: bool


def too_many(files: Iterable[LogFile], most_bytes: int) -> tuple[list[str], list[str]]:
    """Return which files to delete, and which to cut, so that they have at most `most_bytes` together.

    Files that are written to are cut only where it does not suffice to delete all others.
    """
    by_age = sorted(files, key=lambda file: file.modified_s)
    excess = sum(file.size_bytes for file in by_age) - most_bytes
    deleted, cut = [], []
    for file in by_age:
        if excess > 0 and not file.open:
            deleted.append(file.name)
            excess -= file.size_bytes
    for file in sorted(by_age, key=lambda file: -file.size_bytes):
        if excess > 0 and file.open and file.size_bytes > 2 * _KEPT_BYTES:
            cut.append(file.name)
            excess -= file.size_bytes - _KEPT_BYTES
    return deleted, cut


def bound(directory: Path, most_bytes: int, is_open: Callable[[str, float], bool]) -> None:
    """Delete and cut logs of this directory until they have at most `most_bytes`. Raises OSError.

    Args:
        directory: One that need not exist.
        most_bytes: Of all `*.log` in it together.
        is_open: Told a file's name and when it was modified, seconds since 1970; says whether it is written to.
    """
    files = []
    for path in directory.glob("*.log"):
        with suppress(FileNotFoundError):
            told = path.stat()
            files.append(LogFile(path.name, told.st_size, told.st_mtime, is_open(path.name, told.st_mtime)))
    deleted, cut = too_many(files, most_bytes)
    for name in deleted:
        (directory / name).unlink(missing_ok=True)
    for name in cut:
        cut_file(directory / name)


def cut_file(path: Path) -> None:
    """Keep the end of a file that others append to. Raises OSError."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(0, size - _KEPT_BYTES))
        end = file.read()  # may be more: others write to it
        file.truncate(0)
        file.seek(0)
        file.write(f"[{start} bytes before this were cut: log_bytes]\n".encode())
        file.write(end)
