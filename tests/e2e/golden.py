"""The training that the live tests run, and the result that it must have in any case."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from offcut.wire.step_records import StepHistory, history
from offcut.wire.worker_env import ENV_JOB_DIR, ENV_RECORDS

SCRIPT = Path(__file__).with_name("train.py")
SAMPLES = 500
STEPS_PER_EPOCH = 11


class Pace:
    """How long a turn of the training loop takes: on a busy machine the training must not end before what is awaited.

    `steps` are those of the whole training. `options` are the script's. A step of three members takes 15 ms of a core:
    a training that only has to be there while something else happens is cheap if its turns are long.
    """

    TURN_S = 0.03
    #: From which part of the training on a turn takes so long while something is awaited.
    SLOW_TURNS_S: ClassVar = {0.6: 0.5, 0.8: 3.0}

    def __init__(self, directory: Path, steps: int) -> None:
        self._file = directory / "pace"
        self._steps = steps
        self.options = ("--pace-file", str(self._file))
        self.set(self.TURN_S)

    def set(self, turn_s: float) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(str(turn_s))
        new.replace(self._file)

    def awaiting(self, holds: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
        """For `Running.until`: `holds`; most of the training being over, the rest is slow."""

        def look(shown: dict[str, Any]) -> Any:
            turns_s = [turn_s for part, turn_s in self.SLOW_TURNS_S.items() if shown["steps"] > part * self._steps]
            if turns_s:
                self.set(max(turns_s))
            return holds(shown)

        return look

    def to_the_end(self) -> None:
        """Nothing but the end is awaited from now on."""
        self.set(0.0)


def undisturbed(epochs: int) -> dict[int, StepHistory]:
    """Return the steps of the same script, run by plain Python at full speed.

    The script runs once for all tests of this process: a shorter training is the beginning of a longer one.
    """
    steps = _run_alone(SCRIPT, max(epochs, 40))
    return {step: record for step, record in steps.items() if step <= epochs * STEPS_PER_EPOCH}


@functools.cache
def _run_alone(script: Path, epochs: int) -> dict[int, StepHistory]:
    with tempfile.TemporaryDirectory(prefix="offcut-alone-") as directory:
        environment = {**os.environ, ENV_JOB_DIR: directory, ENV_RECORDS: "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(script), "--epochs", str(epochs)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return history(Path(directory) / "records")


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
