"""One member's part in a training: its group, its boundaries and its steps, for all kinds of steps and of loops.

A *boundary* is the moment when a script's loop asks for its next batch: the last step has been applied and the script
has done whatever it does after a step. Membership changes, state moves and workers leave at boundaries only; a step
that failed because a member died was never applied, and its batch comes again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from offcut.errors import InputError, OffcutError
from offcut.membership.boundary import at_boundary
from offcut.torch.membership.agent_link import AgentLink
from offcut.torch.membership.boundary_lock import BoundaryLock
from offcut.torch.membership.job_context import JobContext
from offcut.torch.membership.member import Member, Membership
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.membership.solo_member import SoloMember
from offcut.torch.membership.state_checksum import states_differ
from offcut.torch.membership.state_sync import StateSync
from offcut.torch.membership.step_timing import StepTiming
from offcut.torch.reporting import Reporter
from offcut.torch.state.checkpointer import Checkpointer
from offcut.torch.state.cursor import Cursor
from offcut.torch.state.state_codec import check_state
from offcut.torch.state.training_state import Stateful, TrainingState
from offcut.torch.step.gradient_reduce import MemberFlags, StepOutcome
from offcut.torch.step.protocol import SampleOrder, Step
from offcut.torch.testing.fault_injection import Faults
from offcut.wire.worker_env import ENV_GOAL


class TrainingMember:
    """Does what is due at boundaries, reduces and applies steps, and ends the training. It has no loop of its own.

    Make it after everything that forks, because it opens the connection to the agent.

    Args:
        state: the training's state, as far as this member has it.
        order: which samples belong to which step.
        step: computes, reduces and applies a step.
        join: called in a job only; returns how this member gets the state and how it keeps checkpoints.
        fingerprint: returns the training's fingerprint for the data of its first batch.
    """

    def __init__(
        self,
        state: TrainingState,
        order: SampleOrder,
        step: Step,
        *,
        join: Callable[[JobContext], tuple[StateSync, Checkpointer[Any]]],
        fingerprint: Callable[[Any], str],
    ) -> None:
        self.state = state
        self._order = order
        self._step = step
        self._lock = BoundaryLock()
        #: Held from applying a step until the next boundary is passed.
        self.changing = self._lock.lock
        goal = os.environ.get(ENV_GOAL)
        self._goal_samples = int(goal) if goal else None
        #: Whether the job has trained on as many samples as it was to.
        self.goal_reached = False
        #: The data epochs, or the steps, of the whole training; None: the script has not said them yet.
        self.epochs: int | None = None
        self.until_step: int | None = None
        self._faults = Faults.from_environment()
        #: The outcome of the last step that was reduced, and whether it was applied and no boundary has followed.
        self._outcome: StepOutcome | None = None
        self._applied = False
        self.timing = StepTiming()
        #: The data of the current part.
        self._data: Any = None
        #: Whether a state after a step was checked: it can be saved and sent.
        self._checked = False
        #: Whether this worker is a member, or about to be one.
        self._taking_part = False
        context = JobContext.from_environment(self._faults)
        #: The connection to the agent; None in a script that runs without offcut.
        self.link: AgentLink | None = context.link if context is not None else None
        self.reporter = Reporter(self.link, state, self.timing, fingerprint, self._left)
        self.membership: Membership = SoloMember()
        if context is not None:
            self.membership = Member(context, *join(context), self.changing, self.timing)

    # -- the membership -------------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """This member's number in the current generation. Before the first batch it waits for the first generation."""
        self.take_part()
        return self.membership.rank

    @property
    def world(self) -> int:
        """How many members the current generation has. Before the first batch it waits for the first generation."""
        self.take_part()
        return self.membership.world

    @property
    def steps(self) -> int:
        """How many steps have been applied since the job began."""
        return self.state.step

    @property
    def group(self) -> Group:
        """The process group of the current generation; there is one between a boundary and the end of its step."""
        assert self.membership.group is not None
        return self.membership.group

    def register(self, item: Stateful) -> None:
        """Make `item` part of the training's state.

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
        self.state.registered.append(item)

    def take_part(self) -> None:
        """Become a member: wait for the first generation, and take over its state. Later calls do nothing."""
        if self._taking_part:
            return
        state = self.state
        check_state(state)
        self._taking_part = True
        groups = [len(item.param_groups) for item in state.optimizers]
        if not self.membership.joined:
            self.membership.enter_next()
        if self.membership.resumed or state.step > 0:
            # Before its next batch the script will do what other members, or an earlier run, have done for this state.
            self._lock.hold()
            state.begin_as(groups)

    @property
    def joined(self) -> bool:
        """Whether `take_part` was called."""
        return self._taking_part

    def once(self) -> bool:
        """Return True on one member; False on all between a step that failed and the next batch."""
        self.take_part()
        return self.membership.group is not None and self.membership.rank == 0

    def visit(self, point: str) -> bool:
        """Pass a point at which tests let something fail; return whether the generation is to count as broken."""
        group = self.membership.group
        generation = group.membership.generation if group is not None else 0
        return self._faults.visit(point, step=self.state.step, rank=self.membership.rank, generation=generation)

    # -- batches --------------------------------------------------------------------------------------------------

    def next_part(self, epoch: int) -> Any:
        """Pass the boundary if the last step is complete, and return this member's next part of a global batch.

        Args:
            epoch: the data epoch in whose loop the script is.

        Returns:
            The part; None if the loop over the batches of `epoch` has ended.
        """
        step = self._step
        self.reporter.script_runs(False)
        while True:
            try:
                if not step.more_parts and not self._begin_step(epoch):
                    return None
            except Abandoned as reason:
                self.membership.abandon(str(reason))
                continue
            try:
                part = step.next_part(self.group)
                break
            except Abandoned as reason:
                self.fail_step(reason)
        self._data = part.data
        self.reporter.script_runs(True)
        return part

    @property
    def at_goal(self) -> bool:
        """Whether this member has trained on as many samples as the job was to."""
        return self._goal_samples is not None and self.state.samples >= self._goal_samples

    def _begin_step(self, epoch: int) -> bool:
        """Begin a step, and return True; return False if the loop over `epoch` has ended. Raises Abandoned."""
        self.pass_boundary()
        if self.state.cursor.epoch != epoch:
            return False
        reached = self.at_goal
        if reached or self.membership.furthest > epoch or self._order.done(self.state.cursor):
            self._meet_at_end(epoch)
            self.goal_reached = reached
            self.leave_loop(epoch)
            return False
        self.reporter.step_begun(self.group, self._step.begin(self.group))
        return True

    def _meet_at_end(self, epoch: int) -> None:
        """Wait until every member has come to the end of a data epoch. Raises Abandoned.

        So what the script does next is done on the state after the last step, by all of them, once.
        """
        group = self.group
        if group.world == 1 or self.membership.furthest > epoch:
            return
        group.gather([0])
        if self.visit("epoch-end"):
            raise Abandoned("injected at the end of a data epoch")
        self.reporter.note_stable()

    def _left(self, group: Group) -> tuple[int, int] | None:
        """Return the steps and samples that are left if the training goes on like this; None: not known."""
        size, goal = self._step.batch_size(group), self._goal_samples
        samples = None if goal is None else goal - self.state.samples
        if self.until_step is not None:
            steps = max(0, self.until_step - self.state.step)
            return steps, steps * size if samples is None else min(steps * size, max(0, samples))
        if self.epochs is None:
            return None
        return self._order.left(self.state.cursor, self.epochs, size, samples)

    def leave_loop(self, epoch: int) -> None:
        """Note that the script leaves the loop over the batches of a data epoch, at its end or by `break`.

        Args:
            epoch: the data epoch.
        """
        self._step.drop()
        # The script's changes after a step that did not count are undone before it goes on.
        self._step.settle(applied=self._applied)
        self.state.leave_loop(self._order.end(epoch))
        self._lock.free()

    def end_epoch(self, epoch: int) -> None:
        """Move to the next data epoch, once the script has done what follows the loop over the batches of this one.

        Args:
            epoch: the data epoch that ends.
        """
        self._step.drop()
        # Leaving the inner loop early ends the epoch; a state that was received may be in the next one already.
        if self.state.cursor.epoch == epoch and not self.goal_reached:
            self.state.cursor = Cursor(epoch + 1, 0)

    # -- a step ---------------------------------------------------------------------------------------------------

    def run_step(self) -> bool:
        """Compute what is left of the step, reduce it over the members, and apply it; return whether it counts."""
        if not self.reduce_step():
            return False
        self.apply_step()
        return True

    def reduce_step(self) -> bool:
        """Compute what is left of the step, and reduce it over the members; return whether it counts.

        Where it does, `apply_step` must follow before the next boundary.
        """
        step, member, group, reporter = self._step, self.membership, self.group, self.reporter
        reporter.script_runs(False)
        try:
            step.compute(group)
            if step.commits_in_reduce:
                self._lock.hold()
            flags = MemberFlags(switch=member.newer, save=member.checkpoint_due, leaving=member.leaving)
            with self.timing:
                self._outcome = step.reduce(group, flags)
        except Abandoned as reason:
            self.fail_step(reason)
            return False
        finally:
            reporter.script_runs(True)
        # Every member has applied the step before this one, or it could not have taken part in this reduce.
        reporter.note_stable()
        return True

    def apply_step(self) -> None:
        """Apply the step that was reduced."""
        group, outcome = self.group, self._outcome
        assert outcome is not None
        # From here on the step is part of this member's state.
        self._lock.hold()
        self._step.apply(group, outcome)
        self._applied = True
        if group.world == 1:
            self.reporter.note_stable()
        self.reporter.step_applied(group, self._data)
        self.visit("after-update")

    def fail_step(self, reason: Abandoned) -> None:
        """Note that the generation broke during a step: its batch will come again.

        Args:
            reason: what broke it.
        """
        self.timing.interrupt()
        self._step.fail()
        self._lock.free()
        self.membership.abandon(str(reason))

    # -- boundaries -----------------------------------------------------------------------------------------------

    def pass_boundary(self) -> None:
        """Do what is due at a boundary, where the state is whole: switch generations, leave, or begin a checkpoint."""
        self.visit("boundary")
        self._lock.hold()
        try:
            self._step.settle(applied=self._applied)
            self.state.pass_boundary()
            if self._applied and not self._checked:
                # Only after the first step do optimizers have all of their state.
                self._checked = True
                check_state(self.state)
            self._move_on()
        finally:
            self._lock.free()

    def _move_on(self) -> None:
        member, outcome, group = self.membership, self._outcome, self.membership.group
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
            self.timing.interrupt()
            member.enter_next()
        elif actions.switch and outcome is not None:
            self.timing.interrupt()
            member.switch(outcome.leaving)
        self.timing.boundary()
        if self.state.step < self.reporter.stable_step:
            # All members have gone back to a checkpoint.
            self.reporter.note_stable()
        member.publish_checkpoint(self.reporter.stable_step)

    # -- the end --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Wait until every member has applied the last step, and keep the state for the script's end.

        Raises:
            OffcutError: the members' states are not the same, or the job has gone on without them.
        """
        self.take_part()
        member = self.membership
        while True:
            self.pass_boundary()
            group = self.group
            try:
                if self.visit("finishing"):
                    raise Abandoned("injected at the end")
                mine = member.checksum(group) if group.world > 1 else None
                rows = group.gather([int(member.newer), mine.total if mine is not None else 0])
                if mine is not None and len({total for _, total in rows}) > 1:
                    raise states_differ(group, mine, self.state.step)
                newer = any(row[0] for row in rows)
                if not newer:
                    member.save_at_end(group)
            except Abandoned as reason:
                member.abandon(str(reason))
                continue
            if not newer:
                break
            member.switch(())
        self.reporter.note_stable()
        self.reporter.finished(self.group, self._data)

    def report_failure(self, error: OffcutError) -> None:
        """Tell the job's owner, on the first member, why the training ends.

        Args:
            error: what ended it.
        """
        self.reporter.failed(error, self.membership.rank)
