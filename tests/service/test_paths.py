"""The paths of the controller's own files, and of those that agents see."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from offcut.errors import StoreError
from offcut.service.paths import StatePaths


def test_without_a_share_everything_lies_in_the_state_directory(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path)
    paths.prepare()
    assert paths.shared == tmp_path
    assert not (tmp_path / "share").exists()


def test_a_share_is_remembered(tmp_path: Path) -> None:
    StatePaths(tmp_path / "state", tmp_path / "share").prepare()
    later = StatePaths(tmp_path / "state")
    later.prepare()
    assert later.shared == tmp_path / "share"
    assert later.job("a-1") == tmp_path / "share" / "jobs" / "a-1"
    assert not (tmp_path / "state" / "jobs").exists()


def test_jobs_are_not_left_behind_in_another_directory(tmp_path: Path) -> None:
    StatePaths(tmp_path / "state").prepare()
    with pytest.raises(StoreError, match="have their files in"):
        StatePaths(tmp_path / "state", tmp_path / "share").prepare()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EIO])
def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def no_lock(*_: object) -> None:
        raise OSError(number, "as a network file system says")

    monkeypatch.setattr(fcntl, "flock", no_lock)
    with pytest.raises(StoreError, match="cannot be locked") as refusal:
        StatePaths(tmp_path).take_lock()
    assert "--share" in refusal.value.next_step
