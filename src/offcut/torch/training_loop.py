"""The loop of a training script over data epochs and boundaries, whatever its steps are made of.

A *boundary* is the moment when the loop asks for its next batch: the last step has been applied and the script has done
whatever it does after a step. Membership changes, state moves and workers leave at boundaries only; a step that failed
because a peer died was never applied, and its batch comes again.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from offcut.errors import InputError, OffcutError
from offcut.torch.epoch import Epoch
from offcut.torch.membership.agent_link import AgentLink
from offcut.torch.membership.member import Left, Member, SoloMember
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.membership.state_checksum import Checksum, states_differ
from offcut.torch.membership.step_timing import StepTiming
from offcut.torch.state.cursor import Cursor
from offcut.torch.state.state_codec import check
from offcut.torch.state.training_state import Stateful, TrainingState
from offcut.torch.step.gradient_reduce import StepOutcome
from offcut.torch.step.sampler import Sampler
from offcut.torch.testing.fault_injection import Faults
from offcut.wire.records import StepRecords
from offcut.wire.worker_env import ENV_GOAL, ENV_JOB_DIR, ENV_RECORDS

__all__ = ["Left", "TrainingLoop"]


class Step(Protocol):
    """The step under way."""

    @property
    def more_parts(self) -> bool:
        """Whether parts of this step have still to begin."""

    def next_part(self, group: Group) -> Any:
        """What the script's loop gets next."""

    def drop(self) -> None:
        """The loop was left: the parts that wait will not be worked on."""

    def settle(self, *, applied: bool) -> None:
        """At the boundary after a step: the state is that of the step, or of the one before if it failed."""


class TrainingLoop(ABC):
    """What sessions of every kind share: data epochs, boundaries, the membership, reports, the end.

    Make it after everything that forks: it opens the line to the agent.
    """

    _work: Step

    def __init__(self, state: TrainingState, sampler: Sampler) -> None:
        self._state = state
        self._sampler = sampler
        #: Held from applying a step until the next boundary is passed: outside it the state is that of a boundary.
        self._changing = threading.Lock()
        #: Whether it is held by this thread.
        self._changes = False
        self._records: StepRecords | None = None
        self._goal_samples: int | None = None
        self._faults = Faults.from_environment()
        self._link = AgentLink.from_environment()
        self._configure(self._link.worker if self._link else "alone")
        #: Of the last applied step, and whether a boundary has followed it.
        self._tally: StepOutcome | None = None
        self._applied = False
        self._stable_step = 0
        self._stable_samples = 0
        self._stable_clock_s = 0.0
        self._pace = StepTiming()
        self._fingerprint = ""
        #: The part at hand.
        self._data: Any = None
        self._announced = -1
        self._goal_reached = False
        #: The state after a step was found to be what checkpoints and joiners can take.
        self._checked = False
        #: This worker is a member, or about to be.
        self._taking_part = False
        state.guard()
        self._seat: Member | SoloMember = SoloMember() if self._link is None else self._take_seat(self._link)

    def _configure(self, worker: str) -> None:
        """What the job asks for by environment; a script that runs alone may be asked the same, for comparison."""
        goal = os.environ.get(ENV_GOAL)
        self._goal_samples = int(goal) if goal else None
        if os.environ.get(ENV_RECORDS):
            self._records = StepRecords(Path(os.environ[ENV_JOB_DIR]) / "records", worker)

    @abstractmethod
    def _take_seat(self, link: AgentLink) -> Member:
        """This worker's seat among the members."""

    @abstractmethod
    def _begin_step(self, group: Group) -> None:
        """The next step begins, on the global batch at the cursor."""

    def _checksum(self, group: Group) -> Checksum | None:
        """Of the state, where all members have all of it."""
        return None

    @abstractmethod
    def _look_at(self) -> str:
        """The training's fingerprint, once a step has been done."""

    @abstractmethod
    def _begin_checkpoint(self, group: Group) -> None:
        """Begin a checkpoint at this boundary, as all members of `group` do."""

    @abstractmethod
    def _keep(self) -> None:
        """Publish the checkpoint that has been written, if its step is stable."""

    @abstractmethod
    def _keep_last(self, group: Group) -> None:
        """The training has come to its end, and all members know: keep its state. Raises Abandoned."""

    # -- what a script uses ---------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """This member's number in the current generation, or the last one after a step that failed; changes with it.

        Before the first batch it waits until this worker is a member: call it when the script is ready to train.
        """
        self._take_part()
        return self._seat.rank

    @property
    def world(self) -> int:
        """How many members (ranks) the current generation has, or the last one had; changes with it. See `rank`."""
        self._take_part()
        return self._seat.world

    @property
    def steps(self) -> int:
        """How many steps have been applied since the job began, restarts and resizes included."""
        return self._state.step

    @property
    def loss(self) -> float:
        """Mean loss over the last applied step's global batch."""
        return self._state.loss

    def register(self, item: Stateful) -> None:
        """Make anything with `state_dict` and `load_state_dict` (a scheduler, an average of weights) part of the state.

        Register the same objects in the same order in every run, before the first batch, and before `once()`, `rank`
        and `world` are asked for: with these the state comes.
        """
        if not (hasattr(item, "state_dict") and hasattr(item, "load_state_dict")):
            raise InputError(
                f"Session: register() was given an object of the type {type(item).__name__}, which has no state.",
                next_step="It needs state_dict() and load_state_dict().",
            )
        if self._taking_part:
            raise InputError(
                "Session: register() after the training has begun.",
                next_step="Call it before the loop, and before once(), rank and world.",
            )
        self._state.registered.append(item)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        except OffcutError as found:
            error = found
            raise
        finally:
            self._state.unguard()
            if isinstance(error, OffcutError) and self._link is not None and self._seat.rank == 0:
                self._link.send("note", text=str(error))

    def epochs(self, count: int) -> Iterator[Epoch]:
        """The data epochs that are left of `count`, each an iterator of this member's parts of its global batches.

        A worker that joins a running job begins in the middle of the epoch that the others are in.
        """
        self._take_part()
        state = self._state
        while state.cursor.epoch < count and not self._goal_reached:
            epoch = state.cursor.epoch
            yield Epoch(epoch, self._batches)
            self._work.drop()
            # Leaving the inner loop early ends the epoch; a state that was received may be in the next one already.
            if state.cursor.epoch == epoch and not self._goal_reached:
                state.cursor = Cursor(epoch + 1, 0)

    def once(self) -> bool:
        """True on one member: for what must happen once, such as evaluating, logging or saving the model.

        False on all of them after a step that failed, for until the next batch nobody knows who is still there. Before
        the first batch it waits until this worker is a member.
        """
        self._take_part()
        return self._seat.group is not None and self._seat.rank == 0

    def _take_part(self) -> None:
        """Be a member from now on: wait for the first generation, and take its state."""
        if self._taking_part:
            return
        state = self._state
        check(state.tree())
        self._taking_part = True
        groups = [len(item.param_groups) for item in state.optimizers]
        if not self._seat.taken:
            self._seat.enter_next()
        if self._seat.resumed or state.step > 0:
            # The script is about to do what others, or an earlier run, have done for this state before its next batch.
            self._begin_change()
            state.begin_as(groups)

    # -- a step ---------------------------------------------------------------------------------------------------

    def _at(self, point: str) -> bool:
        """A point at which tests let something go wrong."""
        group = self._seat.group
        generation = group.membership.generation if group is not None else 0
        return self._faults.at(point, step=self._state.step, rank=self._seat.rank, generation=generation)

    def _script_runs(self, runs: bool) -> None:
        """Whether the script has the word, or this session: the agent ends a script that keeps it for too long."""
        if self._link is not None:
            self._link.script_since_s = time.monotonic() if runs else None

    def _group(self) -> Group:
        assert self._seat.group is not None
        return self._seat.group

    def _batches(self, epoch: int) -> Iterator[Any]:
        state, work = self._state, self._work
        while True:
            self._script_runs(False)
            if not work.more_parts:
                self._boundary()
                if state.cursor.epoch != epoch:
                    return
                reached = self._goal_samples is not None and state.samples >= self._goal_samples
                if reached or self._sampler.done(state.cursor):
                    if not self._all_at_end(epoch):
                        continue
                    self._goal_reached = reached
                    self._leave_loop(epoch)
                    return
                self._begin_step(self._group())
            part = work.next_part(self._group())
            self._data = part.data
            self._script_runs(True)
            try:
                yield part
            except GeneratorExit:
                self._leave_loop(epoch)
                raise

    def _all_at_end(self, epoch: int) -> bool:
        """Wait until every member has come to the end of a data epoch; False if members changed: look where it is now.

        So what the script does next is done on the state after the last step, by all of them, once.
        """
        seat, group = self._seat, self._group()
        if group.world == 1 or seat.furthest > epoch:
            return True
        try:
            group.gather([0])
            if self._at("epoch-end"):
                raise Abandoned("injected at the end of a data epoch")
        except Abandoned as reason:
            seat.abandon(str(reason))
            return False
        self._note_stable()
        return True

    def _leave_loop(self, epoch: int) -> None:
        """The script leaves the loop over batches, at its end or by `break`."""
        self._work.drop()
        # What it did after a step that did not count is undone before it goes on.
        self._work.settle(applied=self._applied)
        self._state.leave_loop(Cursor(epoch, self._sampler.samples))
        self._end_change()

    def _note_stable(self) -> None:
        self._stable_step, self._stable_samples = self._state.step, self._state.samples
        self._stable_clock_s = time.monotonic()

    def _report(self, group: Group) -> None:
        link, generation = self._link, group.membership.generation
        if link is None:
            return
        link.progress(
            generation=generation,
            step=self._stable_step,
            samples=self._stable_samples,
            clock_s=self._stable_clock_s,
            own_s=self._pace.own_s,
            loss=self.loss,
            first=group.rank == 0,
        )
        if self._announced != generation:
            self._announced = generation
            if group.rank == 0:
                self._fingerprint = self._fingerprint or self._look_at()
                link.send("formed", generation=generation, step=self._state.step, fingerprint=self._fingerprint)

    # -- boundaries -----------------------------------------------------------------------------------------------

    def _boundary(self) -> None:
        """The state is whole here: switch generations, leave, or begin a checkpoint as needed."""
        self._at("boundary")
        if not self._changes:
            self._begin_change()
        try:
            self._work.settle(applied=self._applied)
            self._state.pass_boundary()
            if self._applied and not self._checked:
                # Only now optimizers have all that they keep.
                self._checked = True
                check(self._state.tree())
            self._move_on()
        finally:
            self._end_change()

    def _begin_change(self) -> None:
        """Until the next boundary the state is not the last one's, or may not be: nobody else may save it."""
        self._changing.acquire()
        self._changes = True

    def _end_change(self) -> None:
        # The lock may be the leaving thread's, which is saving.
        if self._changes:
            self._changes = False
            self._changing.release()

    def _move_on(self) -> None:
        seat, tally, applied = self._seat, self._tally, self._applied
        self._applied = False
        if seat.group is not None and seat.group.stale():
            # Somebody died after the last reduce: there will be no other one in this generation.
            seat.abandon("a newer generation came")
        if applied and tally is not None and seat.group is not None and tally.save and not tally.leaving:
            self._begin_checkpoint(seat.group)
        if seat.group is None:
            self._pace.interrupt()
            seat.enter_next()
        elif applied and tally is not None and (tally.switch or tally.leaving):
            self._pace.interrupt()
            seat.switch(tally.leaving)
        self._pace.boundary()
        if self._link is not None:
            self._keep()

    def _finish(self) -> None:
        """The final barrier: every member has applied the last step, and the state is kept for the script's end."""
        self._take_part()
        seat, link = self._seat, self._link
        while True:
            self._boundary()
            assert seat.group is not None
            try:
                if self._at("finishing"):
                    raise Abandoned("injected at the end")
                mine = self._checksum(seat.group) if seat.group.world > 1 else None
                rows = seat.group.gather([int(seat.newer), mine.total if mine is not None else 0])
                if mine is not None and len({total for _, total in rows}) > 1:
                    raise states_differ(seat.group, mine, self._state.step)
                newer = any(row[0] for row in rows)
                if not newer and link is not None:
                    self._keep_last(seat.group)
            except Abandoned as reason:
                seat.abandon(str(reason))
                continue
            if not newer:
                break
            seat.switch(())
        self._note_stable()
        if link is None:
            return
        self._report(seat.group)
        link.beat_now()
        link.send("finished", generation=seat.group.membership.generation, step=self._state.step, first=seat.rank == 0)
