"""Deletes what offcut wrote in the directories of jobs."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from offcut.wire.metric_records import METRICS_FILE
from offcut.wire.worker_env import OBJECTIVES_FILE

#: Files that workers and agents write there. Other files in the directory are the user's own.
_DIRECTORIES = ("logs", "checkpoints", "records")
_FILES = ("generation", ".generation.*", METRICS_FILE, OBJECTIVES_FILE)


def delete_job_files(directory: Path) -> None:
    """Delete what offcut wrote in a job's directory; and the directory, if nothing else is in it."""
    for file in [file for pattern in _FILES for file in directory.glob(pattern)]:
        with suppress(OSError):
            file.unlink()
    for name in _DIRECTORIES:
        shutil.rmtree(directory / name, ignore_errors=True)
    with suppress(OSError):
        directory.rmdir()
