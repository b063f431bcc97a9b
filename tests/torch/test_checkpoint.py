"""Checkpoints are whole or not there, few, and a disk that fails is told and does not end a training."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from offcut.torch.checkpoint import KEEP, Checkpoints


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def checkpoints(tmp_path: Path, notes: list[str]) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", 0.0, notes.append)


def tree(step: int) -> dict[str, Any]:
    return {"model": {"weight": torch.full((3,), float(step))}, "progress": {"step": step}}


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints._directory.iterdir())


def wait_for_writer(checkpoints: Checkpoints) -> None:
    if checkpoints._writer is not None:
        checkpoints._writer.join()


def test_only_the_newest_stay(checkpoints: Checkpoints) -> None:
    for step in (1, 5, 20, 100):
        checkpoints.save_now(step, tree(step))
    assert names(checkpoints) == ["step-0000000020.pt", "step-0000000100.pt"][-KEEP:]
    newest = checkpoints.newest()
    assert newest is not None
    assert newest["progress"]["step"] == 100
    assert newest["model"]["weight"].tolist() == [100.0] * 3


def test_a_checkpoint_is_a_copy_and_published_only_once_its_step_is_stable(checkpoints: Checkpoints) -> None:
    living = tree(7)
    checkpoints.maybe_begin(7, lambda: living)
    living["model"]["weight"].zero_()
    wait_for_writer(checkpoints)
    checkpoints.publish(6)
    assert checkpoints.newest() is None
    checkpoints.publish(7)
    newest = checkpoints.newest()
    assert newest is not None
    assert newest["model"]["weight"].tolist() == [7.0] * 3
    assert names(checkpoints) == ["step-0000000007.pt"]


@pytest.mark.parametrize("damage", ["empty", "cut", "garbage"])
def test_a_damaged_newest_falls_back_to_the_one_before(checkpoints: Checkpoints, notes: list[str], damage: str) -> None:
    for step in (1, 2):
        checkpoints.save_now(step, tree(step))
    path = checkpoints._directory / "step-0000000002.pt"
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "garbage": os.urandom(2000)}[damage])
    newest = checkpoints.newest()
    assert newest is not None
    assert newest["progress"]["step"] == 1
    assert len(notes) == 1
    assert "step-0000000002.pt cannot be read" in notes[0]


def read_only_place(checkpoints: Checkpoints) -> None:
    # A file stands where the directory should be: fails for root as well, unlike permissions.
    checkpoints._directory.write_text("")


def test_a_place_that_cannot_be_written_is_a_note(checkpoints: Checkpoints, notes: list[str]) -> None:
    read_only_place(checkpoints)
    checkpoints.maybe_begin(3, lambda: tree(3))
    wait_for_writer(checkpoints)
    checkpoints.publish(3)
    checkpoints.save_now(4, tree(4))
    assert len(notes) == 2
    assert all("could not be written" in note for note in notes)


def test_a_full_disk_is_a_note_and_leaves_no_debris(checkpoints: Checkpoints, notes: list[str]) -> None:
    checkpoints.save_now(1, tree(1))
    with_limit(lambda: checkpoints.save_now(2, {"weight": torch.zeros(1 << 20)}), 1 << 16)
    assert len(notes) == 1
    assert "step 2 could not be written" in notes[0]
    assert names(checkpoints) == ["step-0000000001.pt"]


def with_limit(action: Callable[[], None], limit_bytes: int) -> None:
    """Let writes beyond so many bytes of a file fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        action()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_what_a_killed_writer_left_is_cleared_away(checkpoints: Checkpoints) -> None:
    checkpoints._directory.mkdir()
    for step in (3, 12):
        (checkpoints._directory / f".step-{step:010d}.1.2").write_text("half")
    checkpoints.save_now(9, tree(9))
    assert names(checkpoints) == [".step-0000000012.1.2", "step-0000000009.pt"]
