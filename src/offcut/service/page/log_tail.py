"""The end of what a job's workers have printed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from offcut.plaintext import visible

#: At most this much of each log, and this many logs, those that were written to last.
_MOST_BYTES = 16 << 10
_MOST_LOGS = 4


def log_tails(directory: Path) -> list[tuple[str, str]]:
    """Return (worker, text) of the logs in `directory` that were written to last, the newest last.

    Control characters are written out. However large a log is, only its end is read.
    """
    found = []
    for path in directory.glob("*.log"):
        with suppress(FileNotFoundError):
            told = path.stat()
            if told.st_size:
                found.append((told.st_mtime, path))
    newest = [path for _, path in sorted(found)[-_MOST_LOGS:]]
    tails = []
    for path in newest:
        with suppress(OSError):
            tails.append((path.stem, _tail(path)))
    return tails


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _MOST_BYTES))
        data = file.read(_MOST_BYTES)
    if size > _MOST_BYTES:
        data = data[data.find(b"\n") + 1 :]
    return visible(data.decode(errors="replace").replace("\r", "\n"))
