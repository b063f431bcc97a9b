"""Reads a batch log of any known format; the first line shows the format."""

from __future__ import annotations

from pathlib import Path

from offcut.errors import InputError
from offcut.traces.batch_log import BatchLog
from offcut.traces.philly import COLUMNS as PHILLY_COLUMNS
from offcut.traces.philly import read_philly
from offcut.traces.sacct import read_sacct
from offcut.traces.sacct_json import read_sacct_json
from offcut.traces.swf import read_swf
from offcut.traces.text_file import first_line
from offcut.traces.windows import COLUMNS as WINDOW_COLUMNS


def is_windows_file(path: str | Path) -> bool:
    """Return True if `path` is a windows file rather than a batch log."""
    return set(WINDOW_COLUMNS) <= set(first_line(path).split(","))


def read_log(path: str | Path) -> BatchLog:
    """Read SWF, `sacct -P`, `sacct --json` or a Philly CSV, gzipped or not.

    Raises:
        InputError: the file has another format.
    """
    first = first_line(path)
    if first.startswith("{"):
        return read_sacct_json(path)
    if "|" in first:
        return read_sacct(path)
    if set(PHILLY_COLUMNS) <= set(first.split(",")):
        return read_philly(path)
    if first.startswith((";", "-")) or first[:1].isdigit():
        return read_swf(path)
    if set(WINDOW_COLUMNS) <= set(first.split(",")):
        raise InputError(f"{path}: it holds idle windows, not jobs.", next_step="Give the log of a batch queue.")
    raise InputError(
        f"{path}, line 1: '{first[:60]}' is not the first line of a known format.",
        next_step="Give SWF, the output of 'sacct -P' or 'sacct --json', or a Philly CSV.",
    )
