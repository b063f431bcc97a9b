"""Records of training steps, which prove that every sample counted exactly once.

A rank records what it contributes to a step *before* it enters the step's reduce, and the loss after the step was
applied. So whichever processes die, every step that a member applied has the records of all contributors. If a step
has contributions under several generations, the highest counts: a step is done again only if no survivor had applied
it. The lines survive a kill -9, because they are given to the kernel one by one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class StepRecords:
    """Appends to one file per worker in `directory`."""

    def __init__(self, directory: Path, worker: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / f"{worker}.jsonl"
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def contribute(self, *, step: int, generation: int, epoch: int, samples: list[int]) -> None:
        self._write({"step": step, "generation": generation, "epoch": epoch, "samples": samples})

    def applied(self, *, step: int, generation: int, loss: float) -> None:
        self._write({"step": step, "generation": generation, "loss": loss})

    def _write(self, record: dict[str, Any]) -> None:
        data = json.dumps(record).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None


@dataclass(slots=True)
class StepHistory:
    """What counts of one step: its records under its highest generation."""

    generation: int
    epoch: int = 0
    samples: list[int] = field(default_factory=list)
    loss: float | None = None
    #: Generations in which a member applied it; more than one means that it was done again.
    applied_in: set[int] = field(default_factory=set)


def history(directory: Path) -> dict[int, StepHistory]:
    """Return what counts of all records in `directory`, by step."""
    steps: dict[int, StepHistory] = {}
    for record in _lines(directory):
        step = steps.setdefault(record["step"], StepHistory(record["generation"]))
        if record["generation"] > step.generation:
            steps[record["step"]] = step = StepHistory(record["generation"], applied_in=step.applied_in)
        if "loss" in record:
            step.applied_in.add(record["generation"])
        if record["generation"] < step.generation:
            continue
        if "loss" in record:
            step.loss = record["loss"]
        else:
            step.epoch = record["epoch"]
            step.samples += record["samples"]
    return dict(sorted(steps.items()))


def _lines(directory: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(directory.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            # A worker that was killed during its last write leaves half a line, which had no effect yet.
            if line.endswith("}"):
                yield json.loads(line)
