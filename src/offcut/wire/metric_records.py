"""What scripts log in each step, in a file of the job: one record per applied step, whichever members come and go.

The first member writes a record when no failure can undo its step any more. Another first member, or a later run of the
job, goes on in the same file. Steps that were done again after a restart are there twice; the later record counts.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

#: The file's name in the job's directory.
METRICS_FILE = "metrics.jsonl"
#: A line is shorter than this.
_LONGEST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class MetricRecord:
    """What was logged in a step: means over its global batch."""

    #: When the step was applied, seconds since 1970.
    time_s: float
    generation: int
    step: int
    epoch: int
    #: The samples of the training so far.
    samples: int
    values: dict[str, float]

    def line(self) -> str:
        """Return the record as one line of JSON; a value that is not a finite number is null."""
        values = {name: value if math.isfinite(value) else None for name, value in self.values.items()}
        return json.dumps(
            {
                "time_s": self.time_s,
                "generation": self.generation,
                "step": self.step,
                "epoch": self.epoch,
                "samples": self.samples,
                "values": values,
            }
        )

    @classmethod
    def parse(cls, line: str) -> MetricRecord:
        """Return the record of a line. ValueError if it is not one."""
        try:
            found = json.loads(line)
            values = {name: math.nan if value is None else float(value) for name, value in found.pop("values").items()}
            return cls(values=values, **found)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a record: {error}") from None


class MetricFile:
    """Appends to a job's records.

    Args:
        path: the file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        size = os.fstat(self._file).st_size
        end = os.pread(self._file, _LONGEST_BYTES, max(0, size - _LONGEST_BYTES))
        if end and not end.endswith(b"\n"):
            os.write(self._file, b"\n")  # the last writer was killed in the middle of a line
        last = list(_records(end.decode(errors="replace").splitlines()))[-1:]
        #: The generation and the step of the last record.
        self.last = (last[0].generation, last[0].step) if last else (-1, -1)

    def write(self, record: MetricRecord) -> None:
        """Append a record. Raises OSError."""
        data = f"{record.line()}\n".encode()
        while data:
            data = data[os.write(self._file, data) :]
        self.last = record.generation, record.step

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_metrics(path: Path) -> list[MetricRecord]:
    """Return the records of the training as it went in the end, in the order of the steps.

    Args:
        path: the file; if it is missing there are no records. Raises OSError if it cannot be read otherwise.
    """
    kept: list[MetricRecord] = []
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    for record in _records(lines):
        while kept and kept[-1].step >= record.step:
            kept.pop()
        kept.append(record)
    return kept


def _records(lines: Iterable[str]) -> Iterable[MetricRecord]:
    """Yield the records of lines; those that cannot be read are left out, as one that was cut short by a crash."""
    for line in lines:
        try:
            yield MetricRecord.parse(line)
        except ValueError:
            continue
