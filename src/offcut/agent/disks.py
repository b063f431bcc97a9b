"""Finds out whether a job's worker failed because its files could not be written."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

#: Errors of a disk, a quota or a file server that accepts no more data.
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PROBE_BYTES = 64 * 1024


def trouble(directory: Path, said: str) -> str:
    """Return why the disk of `directory` made a worker fail that `said` this last; empty if it did not.

    A script's output goes to that disk too: if it is full, the output may be empty.
    """
    error = _try_to_write(directory)
    if error is not None and error.errno in (*_FULL, errno.EROFS, errno.EIO):
        return f"nothing can be written in {directory}: {os.strerror(error.errno or 0)}"
    for number in _FULL:
        if os.strerror(number) in said:
            return f"its files could not be written: {os.strerror(number)}"
    return ""


def _try_to_write(directory: Path) -> OSError | None:
    probe = directory / f".probe-{os.getpid()}"
    try:
        with probe.open("wb", buffering=0) as file:
            left = _PROBE_BYTES
            while left > 0:
                left -= file.write(bytes(left)) or 0
    except OSError as error:
        return error
    finally:
        with suppress(OSError):
            probe.unlink()
    return None
