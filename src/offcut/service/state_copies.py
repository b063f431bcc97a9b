"""Copies what a trial has saved to the directory of another trial's next job: whole, or not at all."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from offcut.control import State
from offcut.control.sweep_state import sweep_id_of
from offcut.model import JobMode, events
from offcut.model.effects import CopyJobState
from offcut.process.daemon_thread import in_daemon_thread
from offcut.service.job_files import UNFINISHED_COPIES, is_written_by_offcut
from offcut.wire.worker_env import COPIED_STEP_FILE

_log = structlog.get_logger()

#: A disk that cannot be written is tried again after this.
AGAIN_S = 2.0
#: A checkpoint that is complete: see `offcut.torch.state.checkpoint_directory`.
_CHECKPOINT = re.compile(r"step-(\d+)")


class StateCopies:
    """Carries `CopyJobState` out, and tells the controller.

    Args:
        state: the controller's.
        directory: returns the directory of a job's files, and a sweep's.
        now: returns the time of events.
        handle: takes the event that a copy is there.
    """

    def __init__(
        self,
        state: State,
        directory: Callable[[str], Path],
        now: Callable[[], float],
        handle: Callable[[events.Event], object],
    ) -> None:
        self._state = state
        self._directory = directory
        self._now = now
        self._handle = handle

    async def copy(self, effect: CopyJobState) -> None:
        """Copy until it has succeeded, or until the job does not wait for it any more. A full disk is waited for."""
        sweep_id, told = sweep_id_of(effect.job), False
        while (sweep := self._state.sweeps.get(sweep_id)) is not None and effect.job in sweep.copies:
            mode = sweep.search.sweep.job.mode
            try:
                source = await in_daemon_thread(
                    copy_first,
                    [self._directory(each) for each in effect.sources],
                    self._directory(effect.job),
                    self._directory(sweep_id) / UNFINISHED_COPIES / effect.job,
                    mode,
                )
            except OSError as error:
                _log.warning("state_not_copied", job=effect.job, reason=str(error))
                if not told:
                    told = True
                    text = f"the state of {effect.sources[0]} cannot be copied: {error.strerror}. It is tried again"
                    self._handle(events.JobNoted(time_s=self._now(), job=effect.job, text=text))
                await asyncio.sleep(AGAIN_S)
                continue
            found = "" if source is None else effect.sources[source]
            self._handle(events.JobStateCopied(time_s=self._now(), job=effect.job, source=found))
            return


def copy_first(sources: list[Path], target: Path, unfinished: Path, mode: JobMode) -> int | None:
    """Copy what the first of some jobs that has saved anything has saved.

    Args:
        sources: the jobs' directories; nobody writes there.
        target: the directory to make. If it is there, an earlier call has made it.
        unfinished: where the copy is until it is complete, on the same file system.
        mode: `session`: the newest checkpoint. `restart`: what the script itself has written.

    Returns:
        The place of that job in `sources`; None if none has saved anything.

    Raises:
        OSError: the copy cannot be written, or the source not be read.
    """
    for place, source in enumerate(sources):
        checkpoint = _newest_checkpoint(source) if mode == "session" else None
        files = _saved_by_script(source) if mode == "restart" else _files(checkpoint[1]) if checkpoint else []
        if not files:
            continue
        if not target.exists():
            shutil.rmtree(unfinished, ignore_errors=True)
            for file in files:
                new = unfinished / file.relative_to(source)
                new.parent.mkdir(parents=True, exist_ok=True)
                _copy_file(file, new, link=mode == "session")
            if checkpoint is not None:
                (unfinished / "checkpoints" / COPIED_STEP_FILE).write_text(f"{checkpoint[0]}")
            unfinished.rename(target)
        return place
    return None


def _newest_checkpoint(directory: Path) -> tuple[int, Path] | None:
    """Return the step and the directory of the newest complete checkpoint; None if there is none."""
    try:
        paths = list((directory / "checkpoints").iterdir())
    except FileNotFoundError:
        return None
    return max(((int(match[1]), path) for path in paths if (match := _CHECKPOINT.fullmatch(path.name))), default=None)


def _saved_by_script(directory: Path) -> list[Path]:
    """Return the files that the script of a job of mode `restart` has written in the job's directory."""
    try:
        parts = [path for path in directory.iterdir() if not is_written_by_offcut(path.name)]
    except FileNotFoundError:
        return []
    return [file for part in parts for file in (_files(part) if part.is_dir() and not part.is_symlink() else [part])]


def _files(directory: Path) -> list[Path]:
    return [path for path in sorted(directory.rglob("*")) if path.is_symlink() or not path.is_dir()]


def _copy_file(file: Path, new: Path, *, link: bool) -> None:
    """Copy a file, durably. `link`: it is never changed, so that a hard link does, where the file system has them."""
    if link:
        with suppress(OSError):
            os.link(file, new)
            return
    shutil.copy2(file, new, follow_symlinks=False)
    if not new.is_symlink():
        with new.open("rb") as written:
            os.fsync(written.fileno())
