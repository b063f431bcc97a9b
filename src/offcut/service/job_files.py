"""Deletes what offcut wrote in the directories of jobs."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

#: Files that workers and agents write there. Other files in the directory are the user's own.
_WRITTEN = ("logs", "checkpoints", "records")


def delete_job_files(directory: Path) -> None:
    """Delete a job's logs, checkpoints and records; and its directory, if nothing else is in it."""
    for name in _WRITTEN:
        shutil.rmtree(directory / name, ignore_errors=True)
    with suppress(OSError):
        directory.rmdir()
