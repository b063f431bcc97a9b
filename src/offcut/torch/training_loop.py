"""The loop of a training script over data epochs and boundaries, for all kinds of steps.

A *boundary* is the moment when the loop asks for its next batch: the last step has been applied and the script has done
whatever it does after a step. Membership changes, state moves and workers leave at boundaries only; a step that failed
because a member died was never applied, and its batch comes again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from offcut.errors import InputError, OffcutError
from offcut.membership.boundary import at_boundary
from offcut.torch.epoch import Epoch
from offcut.torch.membership.job_context import JobContext
from offcut.torch.membership.member import Member, Membership
from offcut.torch.membership.process_exit import Left
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.membership.solo_member import SoloMember
from offcut.torch.membership.state_checksum import states_differ
from offcut.torch.membership.state_sync import StateSync
from offcut.torch.membership.step_timing import StepTiming
from offcut.torch.reporting import Reporter
from offcut.torch.state.checkpointer import Checkpointer
from offcut.torch.state.cursor import Cursor
from offcut.torch.state.state_codec import check
from offcut.torch.state.training_state import Stateful, TrainingState
from offcut.torch.step.gradient_reduce import MemberFlags, StepOutcome
from offcut.torch.step.protocol import Step
from offcut.torch.step.sampler import Sampler
from offcut.torch.testing.fault_injection import Faults
from offcut.wire.worker_env import ENV_GOAL

__all__ = ["Left", "TrainingLoop"]


class TrainingLoop:
    """The common part of all sessions: data epochs, boundaries, steps, the membership, the end.

    Make it after everything that forks, because it opens the connection to the agent.

    Args:
        state: the training's state, as far as this member has it.
        sampler: which samples belong to which step.
        step: computes, reduces and applies a step.
        join: called in a job only; returns how this member gets the state and how it keeps checkpoints.
        fingerprint: returns the training's fingerprint for the data of its first batch.
    """

    def __init__(
        self,
        state: TrainingState,
        sampler: Sampler,
        step: Step,
        *,
        join: Callable[[JobContext], tuple[StateSync, Checkpointer[Any]]],
        fingerprint: Callable[[Any], str],
    ) -> None:
        self._state = state
        self._sampler = sampler
        self._step = step
        #: Held from applying a step until the next boundary is passed. While free, the state is a boundary's.
        self._changing = threading.Lock()
        #: Whether it is held by this thread.
        self._changes = False
        goal = os.environ.get(ENV_GOAL)
        self._goal_samples = int(goal) if goal else None
        self._goal_reached = False
        #: The data epochs of the whole training; None: the script has not said them yet.
        self._epochs: int | None = None
        self._faults = Faults.from_environment()
        #: The outcome of the last applied step, and whether a boundary has followed it.
        self._outcome: StepOutcome | None = None
        self._applied = False
        self._timing = StepTiming()
        #: The data of the current part.
        self._data: Any = None
        #: Whether a state after a step was checked: it can be saved and sent.
        self._checked = False
        #: Whether this worker is a member, or about to be one.
        self._taking_part = False
        state.guard()
        context = JobContext.from_environment(self._faults)
        self._link = context.link if context is not None else None
        self._reporter = Reporter(self._link, state, self._timing, fingerprint, self._left)
        self._member: Membership = SoloMember()
        if context is not None:
            self._member = Member(context, *join(context), self._changing, self._timing)

    # -- what a script uses ---------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """This member's number in the current generation, or in the last one after a step that failed.

        It changes with the generation. Before the first batch it waits until this worker is a member: call it when the
        script is ready to train.
        """
        self._take_part()
        return self._member.rank

    @property
    def world(self) -> int:
        """How many members (ranks) the current generation has, or the last one had. See `rank`."""
        self._take_part()
        return self._member.world

    @property
    def steps(self) -> int:
        """How many steps have been applied since the job began, restarts and resizes included."""
        return self._state.step

    @property
    def loss(self) -> float:
        """Mean loss over the last applied step's global batch; NaN before the first step."""
        return self._state.loss

    def register(self, item: Stateful) -> None:
        """Make a scheduler, an average of weights or the like part of the training's state.

        Register the same objects in the same order in every run, before the first batch, and before `once()`, `rank`
        and `world` are asked for, because the state arrives with these.

        Args:
            item: anything with `state_dict()` and `load_state_dict()`.

        Raises:
            InputError: `item` has no such methods, or the training has begun.
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
            if isinstance(error, OffcutError):
                self._reporter.failed(error, self._member.rank)

    def epochs(self, count: int) -> Iterator[Epoch]:
        """Iterate over the data epochs that are left of `count`.

        A worker that joins a running job begins in the middle of the epoch that the others are in.

        Args:
            count: how many passes over the data the whole training makes.

        Yields:
            Each epoch: an iterator of this member's parts of its global batches.
        """
        self._take_part()
        self._epochs = count
        state = self._state
        while state.cursor.epoch < count and not self._goal_reached:
            epoch = state.cursor.epoch
            yield Epoch(epoch, self._batches)
            self._step.drop()
            # Leaving the inner loop early ends the epoch; a state that was received may be in the next one already.
            if state.cursor.epoch == epoch and not self._goal_reached:
                state.cursor = Cursor(epoch + 1, 0)

    def once(self) -> bool:
        """Return True on one member: for what must happen once, such as evaluating, logging or saving the model.

        After a step that failed it returns False on all members until the next batch, because it is not known yet which
        members are left. Before the first batch it waits until this worker is a member.
        """
        self._take_part()
        return self._member.group is not None and self._member.rank == 0

    def _take_part(self) -> None:
        """Become a member: wait for the first generation, and take over its state."""
        if self._taking_part:
            return
        state = self._state
        check(state.tree())
        self._taking_part = True
        groups = [len(item.param_groups) for item in state.optimizers]
        if not self._member.joined:
            self._member.enter_next()
        if self._member.resumed or state.step > 0:
            # Before its next batch the script will do what other members, or an earlier run, have done for this state.
            self._begin_change()
            state.begin_as(groups)

    # -- batches --------------------------------------------------------------------------------------------------

    def _at(self, point: str) -> bool:
        """Pass a point at which tests let something fail; return whether the generation is to count as broken."""
        group = self._member.group
        generation = group.membership.generation if group is not None else 0
        return self._faults.visit(point, step=self._state.step, rank=self._member.rank, generation=generation)

    def _group(self) -> Group:
        assert self._member.group is not None
        return self._member.group

    def _batches(self, epoch: int) -> Iterator[Any]:
        state, step = self._state, self._step
        while True:
            self._reporter.script_runs(False)
            if not step.more_parts:
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
                self._reporter.step_begun(self._group(), step.begin(self._group()))
            part = step.next_part(self._group())
            self._data = part.data
            self._reporter.script_runs(True)
            try:
                yield part
            except GeneratorExit:
                self._leave_loop(epoch)
                raise

    def _all_at_end(self, epoch: int) -> bool:
        """Wait until every member has come to the end of a data epoch; return False if the members changed.

        So what the script does next is done on the state after the last step, by all of them, once.
        """
        member, group = self._member, self._group()
        if group.world == 1 or member.furthest > epoch:
            return True
        try:
            group.gather([0])
            if self._at("epoch-end"):
                raise Abandoned("injected at the end of a data epoch")
        except Abandoned as reason:
            member.abandon(str(reason))
            return False
        self._reporter.note_stable()
        return True

    def _left(self, group: Group) -> tuple[int, int] | None:
        """Return the steps and samples that are left if the training goes on like this; None: not known."""
        if self._epochs is None:
            return None
        state, goal = self._state, self._goal_samples
        return self._sampler.left(
            state.cursor, self._epochs, self._step.batch_size(group), None if goal is None else goal - state.samples
        )

    def _leave_loop(self, epoch: int) -> None:
        """Note that the script leaves the loop over batches, at its end or by `break`."""
        self._step.drop()
        # The script's changes after a step that did not count are undone before it goes on.
        self._step.settle(applied=self._applied)
        self._state.leave_loop(Cursor(epoch, self._sampler.samples))
        self._end_change()

    # -- a step ---------------------------------------------------------------------------------------------------

    def _run_step(self) -> bool:
        """Compute what is left of the step, reduce it over the members, and apply it; return whether it counts."""
        step, member, group, reporter = self._step, self._member, self._group(), self._reporter
        reporter.script_runs(False)
        try:
            step.compute(group)
            if step.commits_in_reduce:
                self._begin_change()
            flags = MemberFlags(switch=member.newer, save=member.checkpoint_due, leaving=member.leaving)
            with self._timing:
                outcome = step.reduce(group, flags)
        except Abandoned as reason:
            self._fail_step(reason)
            return False
        finally:
            reporter.script_runs(True)
        # Every member has applied the step before this one, or it could not have taken part in this reduce.
        reporter.note_stable()
        # From here on the step is part of this member's state.
        self._begin_change()
        step.apply(group, outcome)
        self._outcome, self._applied = outcome, True
        if group.world == 1:
            reporter.note_stable()
        reporter.step_applied(group, self._data)
        self._at("after-update")
        return True

    def _fail_step(self, reason: Abandoned) -> None:
        """Note that the generation broke during a step: its batch will come again."""
        self._timing.interrupt()
        self._step.fail()
        self._end_change()
        self._member.abandon(str(reason))

    # -- boundaries -----------------------------------------------------------------------------------------------

    def _boundary(self) -> None:
        """Do what is due at a boundary, where the state is whole: switch generations, leave, or begin a checkpoint."""
        self._at("boundary")
        self._begin_change()
        try:
            self._step.settle(applied=self._applied)
            self._state.pass_boundary()
            if self._applied and not self._checked:
                # Only after the first step do optimizers have all of their state.
                self._checked = True
                check(self._state.tree())
            self._move_on()
        finally:
            self._end_change()

    def _begin_change(self) -> None:
        """Let no other thread save the state until the next boundary, because until then it may not be that of one."""
        if not self._changes:
            self._changing.acquire()
            self._changes = True

    def _end_change(self) -> None:
        # The thread that leaves in time may hold the lock while it saves.
        if self._changes:
            self._changes = False
            self._changing.release()

    def _move_on(self) -> None:
        member, outcome, group = self._member, self._outcome, self._member.group
        actions = at_boundary(
            has_group=group is not None,
            aborted=group is not None and group.stale(),
            applied=self._applied and outcome is not None,
            switch=outcome is not None and outcome.switch,
            save=outcome is not None and outcome.save,
            leaving=outcome is not None and bool(outcome.leaving),
        )
        self._applied = False
        if actions.abandon:
            member.abandon("a newer generation came")
        if actions.checkpoint and group is not None:
            member.begin_checkpoint(group)
        if actions.enter:
            self._timing.interrupt()
            member.enter_next()
        elif actions.switch and outcome is not None:
            self._timing.interrupt()
            member.switch(outcome.leaving)
        self._timing.boundary()
        if self._state.step < self._reporter.stable_step:
            # All members have gone back to a checkpoint.
            self._reporter.note_stable()
        member.publish_checkpoint(self._reporter.stable_step)

    def _finish(self) -> None:
        """Wait until every member has applied the last step, and keep the state for the script's end."""
        self._take_part()
        member = self._member
        while True:
            self._boundary()
            group = self._group()
            try:
                if self._at("finishing"):
                    raise Abandoned("injected at the end")
                mine = member.checksum(group) if group.world > 1 else None
                rows = group.gather([int(member.newer), mine.total if mine is not None else 0])
                if mine is not None and len({total for _, total in rows}) > 1:
                    raise states_differ(group, mine, self._state.step)
                newer = any(row[0] for row in rows)
                if not newer:
                    member.save_at_end(group)
            except Abandoned as reason:
                member.abandon(str(reason))
                continue
            if not newer:
                break
            member.switch(())
        self._reporter.note_stable()
        self._reporter.finished(self._group(), self._data)
