"""The training that the live tests run, and the result that it must have in any case."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offcut.wire.step_records import StepHistory, history
from offcut.wire.worker_env import ENV_JOB_DIR, ENV_RECORDS

SCRIPT = Path(__file__).with_name("train.py")
SAMPLES = 500
STEPS_PER_EPOCH = 11


class Pace:
    """How long a turn of the training loop takes: on a busy machine the training must not end before what is awaited.

    `steps` are those of the whole training. `options` are the script's.
    """

    TURN_S, SLOW_TURN_S = 0.01, 0.5

    def __init__(self, directory: Path, steps: int) -> None:
        self._file = directory / "pace"
        self._slow_from = 0.6 * steps
        self.options = ("--pace-file", str(self._file))
        self.set(self.TURN_S)

    def set(self, turn_s: float) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(str(turn_s))
        new.replace(self._file)

    def awaiting(self, holds: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
        """For `Running.until`: `holds`; most of the training being over, the rest is slow."""

        def look(shown: dict[str, Any]) -> Any:
            if shown["steps"] > self._slow_from:
                self.set(self.SLOW_TURN_S)
            return holds(shown)

        return look

    def to_the_end(self) -> None:
        """Nothing but the end is awaited from now on."""
        self.set(0.0)


def undisturbed(directory: Path, epochs: int) -> dict[int, StepHistory]:
    """Run the same script by plain Python, at full speed. Return its result."""
    directory.mkdir()
    environment = {**os.environ, ENV_JOB_DIR: str(directory), ENV_RECORDS: "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), "--epochs", str(epochs)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return history(directory / "records")


def assert_same_training(steps: dict[int, StepHistory], reference: dict[int, StepHistory]) -> None:
    assert sorted(steps) == sorted(reference)
    for step, record in steps.items():
        assert record.loss == pytest.approx(reference[step].loss, abs=1e-9), step
    assert_every_sample_once(steps)


def assert_every_sample_once(steps: dict[int, StepHistory]) -> None:
    counted: dict[int, Counter[int]] = {}
    for record in steps.values():
        counted.setdefault(record.epoch, Counter()).update(record.samples)
    for epoch, counter in counted.items():
        assert counter == Counter(range(SAMPLES)), f"data epoch {epoch}"
