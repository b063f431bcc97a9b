"""The report at the end of `offcut up` never keeps a controller from ending."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from offcut.cli.final_report import write_at_the_end
from offcut.errors import StoreError
from offcut.service.paths import StatePaths


def hangs(_: StatePaths) -> Path:
    time.sleep(600)
    raise AssertionError


def interrupted(_: StatePaths) -> Path:
    os.kill(os.getpid(), signal.SIGTERM)
    return hangs(_)


def full(_: StatePaths) -> Path:
    raise OSError(28, "No space left on device")


def damaged(_: StatePaths) -> Path:
    raise StoreError("The journal is damaged.")


@pytest.mark.parametrize(
    ("write", "limit_s", "said"),
    [
        (hangs, 0.1, "The report was skipped"),
        (hangs, 0.0, "The report was skipped"),
        (damaged, float("inf"), "could not be written: The journal is damaged."),
        (interrupted, 600.0, "The report was skipped"),
        (full, 600.0, "could not be written in /state: No space left on device."),
        (damaged, 600.0, "could not be written: The journal is damaged."),
    ],
)
def test_the_report_is_skipped_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], write: Callable, limit_s: float, said: str
) -> None:
    monkeypatch.setattr("offcut.report.run_report.write_report", write)
    before = signal.getsignal(signal.SIGTERM)
    write_at_the_end(StatePaths(Path("/state")), limit_s)
    assert said in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
