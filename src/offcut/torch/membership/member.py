"""A member of a job: it enters a generation, switches to the next one with the state, and leaves in time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from offcut.errors import OffcutError
from offcut.membership.entering import NextMove, next_move
from offcut.membership.generation import Generation
from offcut.membership.leaving import BOUNDARY_WAIT_S, SAVING_S, Departure, others_go_on
from offcut.torch.membership.job_context import JobContext
from offcut.torch.membership.process_exit import Left, exit_quickly
from offcut.torch.membership.process_group import Abandoned, Forming, Group
from offcut.torch.membership.state_checksum import Checksum
from offcut.torch.membership.state_sync import StateSync
from offcut.torch.membership.step_timing import StepTiming
from offcut.torch.state.checkpointer import Checkpointer
from offcut.wire.worker_messages import WorkerBroken, WorkerLeft, WorkerReady


class Membership(Protocol):
    """What the training loop asks of a worker's membership; `Member` in a job, `SoloMember` in a script by itself."""

    #: The process group of the current generation; None between two generations.
    group: Group | None
    #: This worker's number in the current generation, or in the last one.
    rank: int
    #: How many members that generation has.
    world: int

    #: Whether this worker has left the job.
    left: bool

    @property
    def joined(self) -> bool:
        """Whether this worker has been a member yet."""
        ...

    @property
    def resumed(self) -> bool:
        """Whether this worker began with the state of members whose scripts had come to their first batch."""
        ...

    @property
    def furthest(self) -> int:
        """The furthest `TrainingState.position` of a member when the current generation formed."""
        ...

    @property
    def newer(self) -> bool:
        """Whether a newer generation than the current one is known."""
        ...

    @property
    def leaving(self) -> bool:
        """Whether this worker was told to leave."""
        ...

    @property
    def checkpoint_due(self) -> bool:
        """Whether this member wants all to begin a checkpoint."""
        ...

    def enter_next(self, gone: Sequence[int] = ()) -> None:
        """Take part in the newest generation; leave the job if this worker is not in it. Raises Left."""
        ...

    def switch(self, leaving: Sequence[int]) -> None:
        """Switch to the next generation at a boundary, as all members do. Raises Left."""
        ...

    def abandon(self, reason: str) -> None:
        """Give the current generation up, because no step can be done in it any more."""
        ...

    def checksum(self, group: Group) -> Checksum | None:
        """Return the checksum that must be equal on all members of `group`; None where there is none."""
        ...

    def begin_checkpoint(self, group: Group) -> None:
        """Begin a checkpoint at this boundary, as all members of `group` do.

        Raises:
            OffcutError: on the first member, if the job has gone on without these members.
        """
        ...

    def publish_checkpoint(self, stable_step: int) -> None:
        """Publish the checkpoint that has been written, if its step is at most `stable_step`."""
        ...

    def save_at_end(self, group: Group) -> None:
        """Save the state for the end of the training, as all members of `group` do.

        Raises:
            Abandoned: the generation broke.
            OffcutError: the job has gone on without these members.
        """
        ...


class Member:
    """Belongs to the training thread.

    Args:
        context: the connection to the agent.
        sync: brings the state to where it is needed.
        checkpointer: keeps checkpoints.
        changing: held by the training thread while the state is not that of a boundary.
        timing: when the next boundary may come.
    """

    def __init__(
        self,
        context: JobContext,
        sync: StateSync,
        checkpointer: Checkpointer[Any],
        changing: threading.Lock,
        timing: StepTiming,
    ) -> None:
        self.group: Group | None = None
        self.rank, self.world = 0, 1
        self.left = False
        self._link = context.link
        self._mark = context.mark
        self._faults = context.faults
        self._sync = sync
        self._checkpointer = checkpointer
        self._changing = changing
        self._timing = timing
        self._tried = -1
        #: The last generation that formed: its members have the state.
        self._formed: Generation | None = None
        #: The members of the newest generation find each other while the previous generation still trains.
        self._forming: Forming | None = None
        #: Whether this worker was told to leave and has just the time left that saving the state takes.
        self._must_go = False
        self._link.on_leave = self._leave_in_time
        self._link.on_generation = self._begin_forming

    @property
    def joined(self) -> bool:
        """See `Membership`."""
        return self._formed is not None

    @property
    def resumed(self) -> bool:
        """See `Membership`."""
        return self._sync.resumed

    @property
    def furthest(self) -> int:
        """See `Membership`."""
        return self._sync.furthest

    @property
    def newer(self) -> bool:
        """See `Membership`."""
        return self.group is not None and self._link.newer_than(self.group.membership.generation)

    @property
    def leaving(self) -> bool:
        """See `Membership`."""
        return self._link.leaving

    @property
    def _waits_no_longer(self) -> bool:
        """Whether this worker was told to leave, and must not wait for the members of a generation that forms.

        Before it has a state, there is nothing that it could give to them or would have to save.
        """
        return self._must_go or (self._link.leaving and not self._sync.has_state)

    # -- entering ---------------------------------------------------------------------------------------------------

    def enter_next(self, gone: Sequence[int] = ()) -> None:
        """Take part in the newest generation, trying until one forms; leave the job if this worker is not in it.

        Args:
            gone: the ranks of the last generation that are known to have left at this boundary.

        Raises:
            Left: this worker leaves.
        """
        link, old = self._link, self.group
        self.group = None
        if not self.joined:
            self._faults.visit("before-ready")
            link.send(WorkerReady())
        while True:
            newest = link.await_newer(self._tried)
            move = next_move(link.worker, newest, was_member=self.joined)
            if move is NextMove.LEAVE or newest is None:
                if old is not None:
                    old.leave()
                self._leave(save=self._must_save(newest, gone, gone_known=old is not None))
                return
            self._tried = newest.generation
            if move is NextMove.WAIT:
                continue
            try:
                group = self._form(newest)
            except Abandoned as reason:
                if self._waits_no_longer:
                    self._leave(save=self._must_save(None, gone, gone_known=False))
                link.send(
                    WorkerBroken(generation=newest.generation, detail=str(reason), unreachable=reason.unreachable)
                )
                continue
            if old is not None:
                old.leave()
            self.group, self._formed = group, newest
            self.rank, self.world = group.rank, group.world
            self._mark.formed(newest.generation, first=group.rank == 0)
            self._checkpointer.members_changed(newest.generation, newest.workers)
            return

    def _begin_forming(self, newest: Generation) -> None:
        """Begin to find the other members of a new generation. Runs in the link's thread."""
        workers = newest.workers
        if len(workers) > 1 and self._link.worker in workers:
            self._forming = Forming(newest, workers.index(self._link.worker), self._link.changed)

    def _form(self, newest: Generation) -> Group:
        link, rank = self._link, newest.workers.index(self._link.worker)
        where = {"step": self._sync.step, "rank": rank, "generation": newest.generation}
        if self._faults.visit("forming", **where):
            raise Abandoned("injected while forming")
        forming = self._forming
        if newest.world > 1 and (forming is None or forming.membership is not newest):
            raise Abandoned("a newer generation came before this one was formed")
        group = Group(
            newest, rank, link.changed, lambda: link.newer_than(newest.generation) or self._waits_no_longer, forming
        )
        try:
            self._sync.synchronise(group)
            if self._faults.visit("formed", **where):
                raise Abandoned("injected once formed")
        except Abandoned:
            group.leave()
            raise
        # In a formed generation only a death ends a wait early: without one all members switch at a boundary.
        group.stale = lambda: link.aborted(newest.generation)
        return group

    # -- leaving the current generation -------------------------------------------------------------------------------

    def abandon(self, reason: str) -> None:
        """Give the current generation up and tell the agent why."""
        group, self.group = self.group, None
        if group is not None:
            group.leave()
            self._link.send(WorkerBroken(generation=group.membership.generation, detail=reason))

    def switch(self, leaving: Sequence[int]) -> None:
        """Switch to the next generation at a boundary, as all members do.

        Args:
            leaving: the ranks that leave the job at this boundary.

        Raises:
            Left: this worker is one of those that leave.
        """
        group = self.group
        assert group is not None
        try:
            going = self._sync.hand_over(group, leaving)
        except Abandoned as reason:
            self.abandon(str(reason))
            self.enter_next(leaving)
            return
        if group.rank in going:
            stay = len(going) < group.world
            self._leave(save=self._must_save(self._link.newest(), going, gone_known=True, handed_over=stay))
        self.enter_next(going)

    def _must_save(
        self, newest: Generation | None, gone: Sequence[int], *, gone_known: bool, handed_over: bool = False
    ) -> bool:
        return self._sync.must_save(
            Departure(self._link.worker, self._formed, newest, gone, gone_known=gone_known, handed_over=handed_over)
        )

    def _leave(self, *, save: bool) -> None:
        """End this worker's part at a boundary. Raises Left."""
        self.left = True
        if save:
            self._sync.save()
        self._link.beat_now()
        self._link.send(WorkerLeft())
        exit_quickly()
        raise Left

    def _leave_in_time(self, leave_by: float, node_wanted: bool) -> None:
        """End this process if no boundary comes in time; save what no other member has. A thread of its own.

        Args:
            leave_by: when it must have ended, an instant of the monotonic clock.
            node_wanted: the queue waits for the node, so that this member waits less for a boundary if others have its
                state.
        """
        boundary_by = min(leave_by, time.monotonic() + BOUNDARY_WAIT_S) if node_wanted else leave_by
        if self._sync.others_suffice and self._timing.next_boundary_s > boundary_by:
            self._leave_to_others(leave_by)
        time.sleep(max(0.0, leave_by - SAVING_S - time.monotonic()))
        link = self._link
        with link.changed:
            self._must_go = True
            link.changed.notify_all()
        # While a generation forms the training thread holds the lock, and leaves with the state by itself.
        if not self._changing.acquire(timeout=max(0.0, leave_by - time.monotonic())):
            return
        last = self.group.membership if self.group is not None else self._formed
        if last is None or not self._sync.save_in_time(last, link.newest(), broke=self.group is None):
            self._changing.release()
            return
        link.send(WorkerLeft())
        os._exit(0)

    def _leave_to_others(self, leave_by: float) -> None:
        """End this process as soon as others are known to go on with the state that they have.

        They do the step under way again, as they would when this worker is killed, and its node is free at once.
        """
        link, group = self._link, self.group
        if group is None:
            return
        current = group.membership
        with link.changed:
            link.changed.wait_for(lambda: link.newer_than(current.generation), leave_by - SAVING_S - time.monotonic())
        if others_go_on(link.worker, current, link.newest()):
            link.send(WorkerLeft())
            os._exit(0)

    # -- checkpoints ------------------------------------------------------------------------------------------------

    @property
    def checkpoint_due(self) -> bool:
        """Whether the first member's newest checkpoint is getting old; False on the others."""
        return self.rank == 0 and self._checkpointer.due

    def checksum(self, group: Group) -> Checksum | None:
        """See `Membership`."""
        return self._sync.checksum(group)

    def begin_checkpoint(self, group: Group) -> None:
        """See `Membership`."""
        if group.rank == 0:
            self._check_not_overtaken()
        current = group.membership
        self._checkpointer.begin(self._sync.step, current.generation, current.workers, group.rank, self._sync.share)

    def publish_checkpoint(self, stable_step: int) -> None:
        """See `Membership`."""
        self._checkpointer.publish(stable_step)

    def save_at_end(self, group: Group) -> None:
        """See `Membership`."""
        self._check_not_overtaken()
        self._sync.save_at_end(group)

    def _check_not_overtaken(self) -> None:
        """Raise OffcutError if the job has gone on without this member, which was cut off from the controller."""
        newer = self._mark.overtaken_by()
        if newer:
            own = self._formed.generation if self._formed is not None else 0
            raise OffcutError(
                f"Generation {newer} of the job has formed while this member of generation {own} was cut off: what it "
                "has trained since does not count.",
                next_step="Nothing is to be done: the job trains elsewhere.",
            )
