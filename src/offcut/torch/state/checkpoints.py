"""Checkpoints for the case that every member is lost: written during the training, published whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.torch.state import dcp_shards
from offcut.torch.state.fault_points import FaultPoints, NoFaults

_NAME = re.compile(r"step-(\d+)")
_UNPUBLISHED = re.compile(r"\.step-(\d+)\..*")
#: How many published checkpoints stay.
KEEP = 2
#: A share that has not been written after this many times the age, and this many seconds, is not waited for.
_PATIENCE_AGES, _PATIENCE_S = 10, 60.0


@dataclass(frozen=True, slots=True)
class _Begun:
    """A checkpoint that this member publishes once all of `workers` have written their shares."""

    step: int
    directory: Path
    workers: tuple[str, ...]
    part: dcp_shards.Share
    since_s: float


class Checkpoints:
    """`directory`, which all nodes see, holds one directory per checkpoint; what has the final name is whole.

    All members begin one at the same boundary; each copies its share there and writes it in a thread of its own. The
    first member publishes when all shares are written and the step is stable. `on_problem` hears of a full or read-only
    disk, once until it has healed. Nothing is published once `overtaken_by` returns a generation's number.
    """

    def __init__(
        self,
        directory: Path,
        age_s: float,
        on_problem: Callable[[str], None],
        faults: FaultPoints | None = None,
        overtaken_by: Callable[[], int] = lambda: 0,
    ) -> None:
        self._faults = faults or NoFaults()
        self._overtaken_by = overtaken_by
        self._directory = directory
        self._age_s = age_s
        # A new one is begun at half the age: the last published one is as old as that plus the writing.
        self._next_s = time.monotonic() + age_s / 2
        self._on_problem = on_problem
        self._failing = False
        self._writer: threading.Thread | None = None
        self._begun: _Begun | None = None
        #: All members have begun it: they have passed its boundary.
        self._begun_by_all = False

    @property
    def due(self) -> bool:
        """Whether the newest checkpoint is getting old. The first member asks, and tells the others."""
        busy = self._begun is not None or (self._writer is not None and self._writer.is_alive())
        return not busy and time.monotonic() >= self._next_s

    def begin(
        self, step: int, generation: int, workers: tuple[str, ...], rank: int, read: Callable[[], dict[str, Any]]
    ) -> None:
        """Copy this member's share of the state and begin to write it; see `Checkpointer`."""
        self._next_s = time.monotonic() + self._age_s / 2
        directory = self._directory / f".step-{step:010d}.{generation}"
        if self._writer is not None and self._writer.is_alive():
            # The disk is slow, and the training does not wait for it: without this share the checkpoint is given up.
            threading.Thread(target=self._leave_out, args=(directory, rank), daemon=True).start()
            return
        part = dcp_shards.share(read(), rank, len(workers))
        if rank == 0:
            self._begun = _Begun(step, directory, workers, part, time.monotonic())
            self._begun_by_all = False
        self._writer = threading.Thread(
            target=self._write, args=(step, directory, part), name="offcut-checkpoint", daemon=True
        )
        self._writer.start()

    def publish(self, stable_step: int, rank: int = 0) -> None:
        """Publish the checkpoint that all members have written, if its step is stable by now."""
        begun = self._begun
        if begun is None or begun.step > stable_step:
            return
        self._begun_by_all = True
        if self._writer is not None and self._writer.is_alive():
            return
        if dcp_shards.complete(begun.directory, len(begun.workers)):
            self._begun = None
            self._publish(begun.step, begun.directory, begun.part, len(begun.workers))
        elif not begun.directory.exists() or dcp_shards.left_out(begun.directory):
            self._begun = None  # a member could not write its share, or gave it up, and has said so
        elif time.monotonic() - begun.since_s > max(_PATIENCE_S, _PATIENCE_AGES * self._age_s):
            self._begun = None
            self._problem(f"the checkpoint at step {begun.step} was given up: not every member has written its share")

    def members_changed(self, generation: int, workers: tuple[str, ...]) -> None:
        """Give up a checkpoint whose missing shares may never come, in a new generation of `workers`.

        These are the shares of members that are gone, and of members that have not seen the end of the step after which
        the others began, and were sent its state.
        """
        begun = self._begun
        if begun is not None and not (self._begun_by_all and set(begun.workers) <= set(workers)):
            if dcp_shards.complete(begun.directory, len(begun.workers)):
                return
            self._begun = None
            self._next_s = time.monotonic()

    def save_now(self, step: int, saved: dict[str, Any]) -> None:
        """Write and publish all of a state before this returns, by this member alone."""
        part = dcp_shards.share(saved, 0, 1)
        directory = self._directory / f".step-{step:010d}.now-{os.getpid()}"
        if self._write(step, directory, part):
            self._publish(step, directory, part, 1)

    def read_newest(self) -> dict[str, Any] | None:
        """Return the newest checkpoint that can be read, or None. Those that cannot be read are reported and set aside.

        The training goes on from an earlier step than theirs, so they must not count as newer than its own.
        """
        unreadable: list[Path] = []
        for path in sorted(self._published(), reverse=True):
            try:
                tree = dcp_shards.read(path)
            except Exception as error:  # torch raises many kinds for a damaged file; the next older one may do
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                self._on_problem(f"the checkpoint {path.name} cannot be read ({reason}); trying an older one")
                unreadable.append(path)
            else:
                self._set_aside(unreadable)
                return tree
        self._set_aside(unreadable)
        return None

    def _set_aside(self, unreadable: list[Path]) -> None:
        """Rename checkpoints that cannot be read; they stay until a checkpoint of a later step is published."""
        for path in unreadable:
            aside = path.with_name(f".{path.name}.unreadable")
            try:
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
            except OSError as error:
                self._on_problem(f"the checkpoint {path.name} cannot be renamed: {error}")

    def _published(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return [path for path in self._directory.iterdir() if _NAME.fullmatch(path.name)]

    def _debris(self, step: int) -> list[Path]:
        """Return the unpublished directories of earlier steps: their writers died, or this checkpoint was quicker."""
        found = ((path, _UNPUBLISHED.fullmatch(path.name)) for path in self._directory.iterdir())
        return [path for path, match in found if match and int(match[1]) < step]

    def _leave_out(self, directory: Path, rank: int) -> None:
        """Tell the member that publishes that this member's share does not come."""
        with suppress(OSError):
            dcp_shards.leave_out(directory, rank)

    def _write(self, step: int, directory: Path, part: dcp_shards.Share) -> bool:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            dcp_shards.write(directory, part, lambda: self._faults.visit("writing", step=step, rank=part.rank))
        except Exception as error:  # DCP wraps the disk's errors in many types of errors
            if directory.exists() or not self._directory.is_dir():
                self._problem(f"a checkpoint at step {step} could not be written: {_cause(error)}")
            # This tells the member that publishes that the share does not come.
            shutil.rmtree(directory, ignore_errors=True)
            return False
        return True

    def _publish(self, step: int, directory: Path, part: dcp_shards.Share, world: int) -> None:
        self._faults.visit("publishing", step=step, rank=part.rank)
        if newer := self._overtaken_by():
            self._problem(f"the checkpoint at step {step} does not count: generation {newer} has formed elsewhere")
            shutil.rmtree(directory, ignore_errors=True)
            return
        try:
            dcp_shards.finish(directory, part.metadata, world)
            final = self._directory / f"step-{step:010d}"
            if final.exists():  # the same state, by members of an earlier generation
                shutil.rmtree(directory)
            else:
                directory.rename(final)
            for old in [*sorted(self._published(), reverse=True)[KEEP:], *self._debris(step)]:
                # Renamed first: a directory with the final name is always complete.
                gone = old.with_name(f".step-{0:010d}.{old.name}")
                with suppress(FileNotFoundError):
                    old.rename(gone)
                    shutil.rmtree(gone, ignore_errors=True)
        except Exception as error:
            self._problem(f"the checkpoint at step {step} could not be published: {_cause(error)}")
            return
        if self._failing:
            self._failing = False
            self._on_problem(f"checkpoints can be written again: step {step}")

    def _problem(self, text: str) -> None:
        if not self._failing:
            self._on_problem(text)
        self._failing = True


def _cause(error: BaseException) -> str:
    """Return the text of the operating system's error that `error` was made from."""
    while not isinstance(error, OSError) and (error.__cause__ or error.__context__) is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return str(error) or type(error).__name__
