"""Deletes what offcut wrote in the directories of jobs."""

from __future__ import annotations

import shutil
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from offcut.wire.metric_records import METRICS_FILE
from offcut.wire.worker_env import OBJECTIVES_FILE

#: In a sweep's directory: copies of the state of trials that are not complete yet.
UNFINISHED_COPIES = ".copies"
#: Files that workers and agents write there. Other files in the directory are the user's own.
_DIRECTORIES = ("logs", "checkpoints", "records", UNFINISHED_COPIES)
_FILES = ("generation", ".generation.*", METRICS_FILE, OBJECTIVES_FILE)


def is_written_by_offcut(name: str) -> bool:
    """Return whether agents and workers write the file or directory of this name in a job's directory.

    Checkpoints of a session are not meant: a script of mode `restart` may have a directory of that name.
    """
    return name in ("logs", "records") or any(fnmatch(name, pattern) for pattern in _FILES)


def delete_job_files(directory: Path) -> None:
    """Delete what offcut wrote in a job's directory; and the directory, if nothing else is in it."""
    for file in [file for pattern in _FILES for file in directory.glob(pattern)]:
        with suppress(OSError):
            file.unlink()
    for name in _DIRECTORIES:
        shutil.rmtree(directory / name, ignore_errors=True)
    with suppress(OSError):
        directory.rmdir()
