"""Checkpoints for the case that the state is lost: written during the training, published whole or not at all."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from offcut.errors import InputError
from offcut.torch.state import dcp_shards
from offcut.torch.state.checkpoint_directory import CheckpointDirectory
from offcut.torch.state.checkpoint_layout import CheckpointLayout
from offcut.torch.state.fault_points import FaultPoints, NoFaults

#: What one member saves.
SavedT = TypeVar("SavedT")
#: A share that has not been written after this many times the age, and this many seconds, is not waited for.
_PATIENCE_AGES, _PATIENCE_S = 10, 60.0


@dataclass(frozen=True, slots=True)
class _Begun:
    """A checkpoint that this member publishes once all of `workers` have written their shares."""

    step: int
    directory: Path
    workers: tuple[str, ...]
    since_s: float


class Checkpoints(Generic[SavedT]):
    """One member's part in keeping checkpoints, for all kinds of jobs; see `Checkpointer`.

    All members begin one at the same boundary; each copies its shares there and writes them in a thread of its own. The
    first member publishes when all shares are written and the step is stable.

    Args:
        directory: where they are kept.
        age_s: how old the newest checkpoint may get.
        on_problem: hears of a full or read-only disk, once until it has healed, and of checkpoints that are not used.
        layout: which shares a checkpoint has.
        faults: asked at points at which tests let a member fail.
        overtaken_by: nothing is published once this returns a generation's number.
    """

    def __init__(
        self,
        directory: Path,
        age_s: float,
        on_problem: Callable[[str], None],
        layout: CheckpointLayout[SavedT],
        faults: FaultPoints | None = None,
        overtaken_by: Callable[[], int] = lambda: 0,
    ) -> None:
        self._faults = faults or NoFaults()
        self._overtaken_by = overtaken_by
        self._layout = layout
        self.directory = CheckpointDirectory(directory)
        self._age_s = age_s
        # A new one is begun at half the age: the last published one is as old as that plus the writing. Where the loss
        # of one member can be the loss of the state, the first is due at once.
        self._next_s = 0.0 if layout.adds_up else time.monotonic() + age_s / 2
        self._on_problem = on_problem
        self._failing = False
        self._writer: threading.Thread | None = None
        #: The checkpoint that this member, as the first, has begun; the newest step that it has begun in any place.
        self._begun: _Begun | None = None
        self._begun_step = -1
        #: All members have begun it: they have passed its boundary.
        self._begun_by_all = False
        #: The last generation that formed with this member.
        self._generation = 0

    # -- while the job trains -----------------------------------------------------------------------------------------

    @property
    def due(self) -> bool:
        """See `Checkpointer`."""
        busy = self._begun is not None or (self._writer is not None and self._writer.is_alive())
        return not busy and time.monotonic() >= self._next_s

    def begin(
        self, step: int, generation: int, workers: tuple[str, ...], rank: int, read: Callable[[], SavedT]
    ) -> None:
        """Copy this member's shares of the state and begin to write them; see `Checkpointer`."""
        self._next_s = time.monotonic() + self._age_s / 2
        directory = self.directory.unpublished(step, generation)
        if self._writer is not None and self._writer.is_alive():
            # The disk is slow, and the training does not wait for it: without this share the checkpoint is given up.
            threading.Thread(target=self._leave_out, args=(directory, rank), daemon=True).start()
            return
        shares = self._layout.shares(read(), rank, len(workers))
        self._begun_step = step
        if rank == 0:
            self._begun = _Begun(step, directory, workers, time.monotonic())
            self._begun_by_all = False
        self._writer = threading.Thread(
            target=self._write_shares, args=(step, directory, shares, rank), name="offcut-checkpoint", daemon=True
        )
        self._writer.start()

    def publish(self, stable_step: int) -> bool:
        """Publish the checkpoint that all members have written, if its step is stable by now.

        Returns:
            Whether this call has published one.
        """
        begun = self._begun
        if begun is None or begun.step > stable_step:
            return False
        self._begun_by_all = True
        if self._writer is not None and self._writer.is_alive():
            return False
        if self._complete(begun.directory, begun.workers):
            self._begun = None
            return self._publish(begun.step, begun.directory, len(begun.workers))
        if not begun.directory.exists() or dcp_shards.left_out(begun.directory):
            self._begun = None  # a member could not write its share, or gave it up, and has said so
        elif time.monotonic() - begun.since_s > max(_PATIENCE_S, _PATIENCE_AGES * self._age_s):
            self._begun = None
            self._problem(f"the checkpoint at step {begun.step} was given up: not every member has written its share")
        return False

    def members_changed(self, generation: int, workers: tuple[str, ...]) -> None:
        """Give up a checkpoint whose missing shares may never come, in a new generation of `workers`.

        These are the shares of members that are gone, and of members that have not seen the end of the step after which
        the others began, and were sent its state.
        """
        self._generation = generation
        begun = self._begun
        if begun is not None:
            if self._begun_by_all and set(begun.workers) <= set(workers):
                return
            if self._complete(begun.directory, begun.workers):
                return
            self._begun = None
            self._next_s = time.monotonic()
        elif self._layout.adds_up and self._begun_step > self.newest_step():
            # The member that was to publish it may be gone.
            self._next_s = time.monotonic()

    def save_now(self, step: int, saved: SavedT) -> None:
        """Write what this member has, and publish the checkpoint if nothing is missing, before this returns."""
        adds_up = self._layout.adds_up
        directory = self.directory.unpublished(step, self._generation if adds_up else f"now-{os.urandom(4).hex()}")
        shares = self._layout.shares(saved, 0, 1)
        written = self._write_shares(step, directory, shares, 0, others=adds_up)
        if written and dcp_shards.complete(directory, self._layout.names(1)):
            self._publish(step, directory, 1)
        elif written:
            # Where all members save, what others have written may be seen later.
            self._begun = _Begun(step, directory, ("",), time.monotonic())

    def _complete(self, directory: Path, workers: tuple[str, ...]) -> bool:
        return dcp_shards.complete(directory, self._layout.names(len(workers)))

    def _leave_out(self, directory: Path, rank: int) -> None:
        """Tell the member that publishes that this member's share does not come."""
        with suppress(OSError):
            dcp_shards.leave_out(directory, rank)

    def _write_shares(
        self, step: int, directory: Path, shares: list[dcp_shards.Share], rank: int, *, others: bool = False
    ) -> bool:
        """Write shares.

        Args:
            step: the step whose state they are.
            directory: the checkpoint's.
            shares: the shares.
            rank: this member's rank.
            others: whether shares of other members there are of use without these.

        Returns:
            Whether they were written. If not, this was reported.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for share in shares:
                dcp_shards.write(directory, share, lambda: self._faults.visit("writing", step=step, rank=rank))
        except Exception as error:  # DCP wraps the disk's errors in many types of errors
            if directory.exists() or not self.directory.path.is_dir():
                self._problem(f"a checkpoint at step {step} could not be written: {_cause(error)}")
            if not others:
                # This tells the member that publishes that the share does not come.
                shutil.rmtree(directory, ignore_errors=True)
            return False
        return True

    def _publish(self, step: int, directory: Path, world: int) -> bool:
        self._faults.visit("publishing", step=step, rank=0)
        if newer := self._overtaken_by():
            self._problem(f"the checkpoint at step {step} does not count: generation {newer} has formed elsewhere")
            shutil.rmtree(directory, ignore_errors=True)
            return False
        try:
            mine = self.directory.claim(directory)
            if mine is None:
                return False
            dcp_shards.finish(mine, self._layout.names(world))
            self.directory.publish(step, mine)
        except Exception as error:
            if not self.directory.published(step).exists():  # else another member was quicker
                self._problem(f"the checkpoint at step {step} could not be published: {_cause(error)}")
            return False
        if self._failing:
            self._failing = False
            self._on_problem(f"checkpoints can be written again: step {step}")
        return True

    def _problem(self, text: str) -> None:
        if not self._failing:
            self._on_problem(text)
        self._failing = True

    # -- reading ------------------------------------------------------------------------------------------------------

    def newest_step(self) -> int:
        """Return the step of the newest published checkpoint; -1 if there is none."""
        return max(self.directory.steps(), default=-1)

    def before(self, step: int) -> int:
        """Return the step of the newest published checkpoint before that of `step`; -1 if there is none."""
        return max((found for found in self.directory.steps() if found < step), default=-1)

    def read_newest(self, check: Callable[[dict[str, Any]], None] = lambda tree: None) -> dict[str, Any] | None:
        """Return the newest checkpoint that can be read, or None. Those that cannot be read are reported and set aside.

        The training goes on from an earlier step than theirs, so they must not count as newer than its own.

        Args:
            check: raises InputError if a state is not one of this training.

        Raises:
            InputError: there are checkpoints, and none is damaged, but all are of another training or version.
        """
        unfit: InputError | None = None
        unused: list[int] = []
        for step in self.directory.steps():
            try:
                tree = dcp_shards.read(self.directory.published(step))["state"]
                check(tree)
            except Exception as error:  # torch raises many types of errors for a damaged file
                self._report_unread(self.directory.published(step).name, error)
                unfit = unfit or (error if isinstance(error, InputError) else None)
                unused.append(step)
            else:
                self._set_aside(unused)
                return tree
        if unfit is not None:
            raise unfit
        self._set_aside(unused)
        return None

    def read(
        self, step: int, pieces: Collection[str], check: Callable[[dict[str, Any]], None] = lambda trees: None
    ) -> dict[str, dict[str, Any]] | InputError | None:
        """Return pieces of a published checkpoint by name.

        Args:
            step: the checkpoint's.
            pieces: their names.
            check: raises InputError if they are not of this training.

        Returns:
            The pieces; the error if they are of another training or version; None if they cannot be read. The latter
            two are reported.
        """
        try:
            found = dcp_shards.read(self.directory.published(step), pieces)
            check(found)
        except Exception as error:  # as above
            self._report_unread(f"of step {step}", error)
            return error if isinstance(error, InputError) else None
        return found

    def has(self, step: int, pieces: Collection[str]) -> bool:
        """Return whether those pieces of that step can be read, published or not; others may be missing."""
        return all(self._place(step, piece) is not None for piece in pieces)

    def piece(self, step: int, name: str) -> dict[str, Any]:
        """Return a piece of the state of a step, published or not. Raises an Exception if it cannot be read."""
        place = self._place(step, name)
        if place is None:
            raise FileNotFoundError(f"{name} of step {step} is missing")
        return dcp_shards.read(place, [name])[name]

    def go_back(self, step: int, *, first: bool) -> None:
        """Note that all members go on from the checkpoint of `step`, or from the beginning (-1).

        Published checkpoints of later steps must not count as newer than the training's own: they are renamed, and stay
        until a later step than theirs is published. Of unpublished ones no share may be read any more: they are
        deleted.

        Args:
            step: the checkpoint's.
            first: whether this is the first member, which does that for all.
        """
        self._begun, self._begun_step = None, step
        if first:
            self._set_aside([found for found in self.directory.steps() if found > step])
            self.directory.drop_unpublished_after(step)

    def finish_writing(self) -> None:
        """Wait until this member has written what it has begun to write."""
        if self._writer is not None:
            self._writer.join()

    def _place(self, step: int, piece: str) -> Path | None:
        published = self.directory.published(step)
        places = self.directory.places(step)
        return next((path for path in places if path == published or dcp_shards.complete(path, [piece])), None)

    def _report_unread(self, name: str, error: Exception) -> None:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        what = "is not used" if isinstance(error, InputError) else "cannot be read"
        self._on_problem(f"the checkpoint {name} {what} ({reason}); trying an older one")

    def _set_aside(self, steps: list[int]) -> None:
        for step in steps:
            try:
                self.directory.set_aside(step)
            except OSError as error:
                self._on_problem(f"the checkpoint of step {step} cannot be renamed: {error}")


def _cause(error: BaseException) -> str:
    """Return the text of the operating system's error that `error` was made from."""
    while not isinstance(error, OSError) and (error.__cause__ or error.__context__) is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return str(error) or type(error).__name__
