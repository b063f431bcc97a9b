"""The file of job starts, `job,start_s`: a schedule, on the clock of its log."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from offcut.traces.text_file import write_text


def write_starts(path: str | Path, ids: Sequence[str], start_s: Iterable[float]) -> None:
    """Write one line per job, in the order given; whole seconds without a decimal point."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("job", "start_s"))
    writer.writerows((job, f"{float(start):.15g}") for job, start in zip(ids, start_s, strict=True))
    write_text(path, text.getvalue())
