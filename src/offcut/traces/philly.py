"""The CSV of Microsoft's Philly trace: `timestamp,duration,num_gpus,gpu_time,cluster`.

The timestamp is taken as the submission; no start, no requested time and no machine are recorded.
"""

from __future__ import annotations

import csv
import io
import math
from datetime import UTC, datetime
from pathlib import Path

from offcut.errors import InputError
from offcut.traces.batch_log import BatchJob, BatchLog, count_note, make_log
from offcut.traces.text_file import read_text

COLUMNS = ("timestamp", "duration", "num_gpus")


def read_philly(path: str | Path) -> BatchLog:
    """Read a Philly CSV, gzipped or not; rows may be in any order.

    Raises:
        InputError: the file is not valid; it names the file, the line and the field.
    """
    reader = csv.reader(io.StringIO(read_text(path)))
    header = next(reader, [])
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise InputError(
            f"{path}, line 1: the header has no column {', '.join(missing)}.",
            next_step="The first line is 'timestamp,duration,num_gpus,gpu_time,cluster'.",
        )
    place = [header.index(name) for name in COLUMNS]
    jobs: list[BatchJob] = []
    never_ran = 0
    for row in reader:
        if not row:
            continue
        where = f"{path}, line {reader.line_num}"
        if len(row) != len(header):
            raise InputError(
                f"{where}: {len(row)} fields, but the header has {len(header)}.",
                next_step="Check that the file is complete.",
            )
        stamp, duration, gpus = (row[i] for i in place)
        try:
            submit_s = datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
        except ValueError:
            raise InputError(
                f"{where}, field timestamp: '{stamp[:40]}' is not a time.", next_step="Write 2017-10-09 07:01:55."
            ) from None
        run_s, count = _number(duration, where, "duration"), _number(gpus, where, "num_gpus")
        if run_s <= 0 or count < 1:
            never_ran += 1
            continue
        jobs.append(BatchJob(id=str(reader.line_num - 1), submit_s=submit_s, run_s=run_s, nodes=int(count)))
    notes = count_note(never_ran, "Jobs without duration or GPUs, left out")
    return make_log(str(path), jobs, unit="GPUs", notes=notes)


def _number(text: str, where: str, field: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{where}, field {field}: '{text[:40]}' is not a number.", next_step="Correct the line.")
    return value
