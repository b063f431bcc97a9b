"""Copies of the state of trials: whole or not at all, whenever the controller is killed and whatever the disk does."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offcut.control import State
from offcut.control.sweep_state import StateCopy, SweepState
from offcut.model import Job, Sizes, effects
from offcut.model import events as ev
from offcut.model.search_space import SearchSpace
from offcut.model.sweep import SchedulerChoice, Sweep
from offcut.search import begin
from offcut.service import state_copies
from offcut.service.state_copies import StateCopies, copy_first


class Killed(BaseException):
    """The controller is killed here."""


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        path = directory / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def tree(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


SESSION = {
    "checkpoints__step-0000000009__a": "old",
    "checkpoints__step-0000000010__a": "new",
    "checkpoints__step-0000000010__b": "new b",
    "checkpoints__.step-0000000011.3__a": "half",
    "logs__out": "text",
    "generation": "3",
    "objectives.jsonl": "{}",
}


def test_of_a_session_the_newest_complete_checkpoint_is_copied_without_taking_room(tmp_path: Path) -> None:
    source = write(tmp_path / "a", **SESSION)
    target = tmp_path / "b"
    assert copy_first([source], target, tmp_path / "s" / "b", "session") == 0
    assert tree(target) == {
        "checkpoints/copied-step": "10",
        "checkpoints/step-0000000010/a": "new",
        "checkpoints/step-0000000010/b": "new b",
    }
    assert (target / "checkpoints/step-0000000010/a").stat().st_nlink == 2
    # The source deletes its own later on.
    shutil.rmtree(source)
    assert tree(target)["checkpoints/step-0000000010/b"] == "new b"


def test_of_a_script_all_is_copied_that_it_has_written_itself(tmp_path: Path) -> None:
    source = write(tmp_path / "a", **SESSION, epoch="3", sub__weights="w")
    (source / "latest").symlink_to("epoch")
    target = tmp_path / "b"
    assert copy_first([source], target, tmp_path / "s" / "b", "restart") == 0
    copied = tree(target)
    assert copied["epoch"] == "3"
    assert copied["sub/weights"] == "w"
    assert copied["latest"] == "3"
    assert not {"logs/out", "generation", "objectives.jsonl"} & set(copied)
    (source / "epoch").write_text("4")
    assert tree(target)["epoch"] == "3", "a script may change its files in place"


def test_the_next_source_is_copied_if_the_first_has_saved_nothing(tmp_path: Path) -> None:
    empty = write(tmp_path / "e", logs__out="text")
    source = write(tmp_path / "a", **SESSION)
    for mode in ("session", "restart"):
        assert copy_first([empty, tmp_path / "none"], tmp_path / "b", tmp_path / "s" / "b", mode) is None  # type: ignore[arg-type]
        assert not (tmp_path / "b").exists()
    assert copy_first([empty, source], tmp_path / "b", tmp_path / "s" / "b", "session") == 1


@pytest.mark.parametrize("mode", ["session", "restart"])
@pytest.mark.parametrize("error", [Killed(), OSError(28, "No space left on device")])
def test_a_kill_or_a_full_disk_at_any_moment_leaves_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any, error: BaseException
) -> None:
    source = write(tmp_path / "a", **SESSION, epoch="3")
    target, unfinished = tmp_path / "b", tmp_path / "s" / "b"
    calls = 0
    fails_at = 0

    def failing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == fails_at:
                raise error
            return function(*arguments, **options)

        return call

    monkeypatch.setattr(state_copies, "_copy_file", failing(state_copies._copy_file))
    monkeypatch.setattr(Path, "rename", failing(Path.rename))
    copy_first([source], target, unfinished, mode)
    whole = tree(target)
    for place in range(1, calls + 1):
        fails_at = place
        shutil.rmtree(target)
        calls = 0
        with pytest.raises(type(error)):
            copy_first([source], target, unfinished, mode)
        assert not target.exists()
        calls = -1000
        assert copy_first([source], target, unfinished, mode) == 0
        assert tree(target) == whole
        assert copy_first([source], target, unfinished, mode) == 0, "asked again, as after a restart"


def test_a_disk_that_is_full_is_told_once_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_copies, "AGAIN_S", 0.0)
    source = write(tmp_path / "s-1.1", **SESSION)
    job = Job(id="s-1", name="s", command=("t.py",), sizes=Sizes.parse("1"))
    scheduler = SchedulerChoice("pbt", (("max_budget", 9.0),))
    sweep = SweepState(begin(Sweep(id="s-1", name="s", job=job, space=SearchSpace(()), scheduler=scheduler))[0], 0.0)
    sweep.copies["s-1.0-1"] = StateCopy(("s-1.1", "s-1.0"), asked=True)
    state, told = State(sweeps={"s-1": sweep}), list[ev.Event]()
    full = 3

    def link(*paths: Path) -> None:
        nonlocal full
        full -= 1
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(shutil, "copy2", lambda *paths, **_: link() if full > 0 else paths[1].write_text("x"))
    copies = StateCopies(state, lambda job_id: tmp_path / job_id, lambda: 1.0, told.append)
    effect = effects.CopyJobState(cause=1, index=0, job="s-1.0-1", sources=("s-1.1", "s-1.0"))
    asyncio.run(copies.copy(effect))
    text = "the state of s-1.1 cannot be copied: No space left on device. It is tried again"
    assert told == [
        ev.JobNoted(time_s=1.0, job="s-1.0-1", text=text),
        ev.JobStateCopied(time_s=1.0, job="s-1.0-1", source="s-1.1"),
    ]
    assert source.exists()
    del sweep.copies["s-1.0-1"]
    asyncio.run(copies.copy(effect))
    assert len(told) == 2, "the trial was stopped meanwhile"
