"""A worker's seat among a job's members: taking it, moving to the next generation with the state, and giving it up."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Sequence

import torch

from offcut.errors import OffcutError
from offcut.torch.membership.agent_link import AgentLink, Generation
from offcut.torch.membership.differences import difference
from offcut.torch.membership.process_group import Abandoned, Forming, Group
from offcut.torch.membership.state_checksum import arithmetic, number
from offcut.torch.membership.state_transfer import give, receive, rounds
from offcut.torch.membership.step_timing import StepTiming
from offcut.torch.state.checkpoints import Checkpoints
from offcut.torch.state.training_state import TrainingState
from offcut.torch.testing.fault_injection import Faults

#: How long before it must be gone a worker stops waiting for its step boundary and saves the last one instead.
_SAVING_S = 0.6


def exit_quickly() -> None:
    """Leave out what torch would do at this process's exit: unregister every operator, which takes longer than all the
    rest of leaving a node, and is of no use to a process that ends. The script's own finalizers run as ever."""
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        alive = finalizer.peek()
        if alive is not None and getattr(alive[1], "__module__", "") == "torch.library":
            finalizer.atexit = False


def no_first_values() -> OffcutError:
    """The training has to begin, and what the script made is gone."""
    return OffcutError(
        "A state was received in part, its givers are gone, and there is no checkpoint.",
        next_step="The job begins anew with another worker.",
    )


class Left(SystemExit):
    """This worker leaves its job: the script ends here, its work so far is safe with the other members or on disk."""

    def __init__(self) -> None:
        super().__init__(0)


class SoloMember:
    """The seat of a script that runs without offcut: a group of one that nobody joins."""

    def __init__(self) -> None:
        nobody = Generation(0, ("alone",), "", "")
        self.group: Group | None = Group(nobody, 0, threading.Condition(), lambda: False)
        self.taken = True
        self.newer = False
        self.leaving = False
        self.rank, self.world, self.furthest, self.resumed = 0, 1, -1, False

    def enter_next(self, gone: Sequence[int] = ()) -> None:
        raise AssertionError("a script that runs alone has no next generation")

    def switch(self, leaving: Sequence[int]) -> None:
        raise AssertionError("a script that runs alone has no next generation")


class Member:
    """Belongs to the training thread; `changing` is held by it whenever the state is not that of a boundary."""

    def __init__(
        self,
        link: AgentLink,
        state: TrainingState,
        checkpoints: Checkpoints,
        changing: threading.Lock,
        faults: Faults,
        pace: StepTiming,
    ) -> None:
        self.group: Group | None = None
        #: In the current generation, or the last one.
        self.rank, self.world = 0, 1
        #: The furthest position of a member's script when the current generation formed; see `TrainingState.position`.
        self.furthest = -1
        #: This worker began with the state of members whose scripts had come to their first batch.
        self.resumed = False
        self._link = link
        self._state = state
        self._checkpoints = checkpoints
        self._changing = changing
        self._faults = faults
        self._pace = pace
        self._tried = -1
        self._has_state = False
        #: The values that the script began with are gone.
        self._overwritten = False
        #: The last generation that held: its members have the state.
        self._formed: Generation | None = None
        #: The members of the newest generation find each other while the one before is still trained under.
        self._forming: Forming | None = None
        link.on_leave = self._leave_in_time
        link.on_generation = self._begin_forming

    @property
    def taken(self) -> bool:
        """Whether this worker has been a member yet."""
        return self._formed is not None

    @property
    def newer(self) -> bool:
        """Whether a newer generation than the current one is known."""
        return self.group is not None and self._link.newer_than(self.group.membership.generation)

    @property
    def leaving(self) -> bool:
        return self._link.leaving

    @property
    def _nothing_to_keep(self) -> bool:
        """Told to leave before it has any state: whoever it still waits for may never come, and its node is wanted."""
        return self._link.leaving and not self._has_state

    def abandon(self, reason: str) -> None:
        """The current generation cannot go on."""
        group, self.group = self.group, None
        if group is not None:
            group.leave()
            self._link.send("broken", generation=group.membership.generation, detail=reason)

    def switch(self, leaving: Sequence[int]) -> None:
        """At a boundary after which all members go their ways, the ranks `leaving` for good. Raises Left."""
        assert self.group is not None
        if self.group.rank in leaving:
            self.leave(save=len(leaving) == self.group.world and self.group.rank == 0)
        self.enter_next(leaving)

    def enter_next(self, gone: Sequence[int] = ()) -> None:
        """Take part in the newest generation, again and again until one holds; leave where this worker is in none.

        `gone` are the ranks of the last generation that are known to have left at this boundary. Raises Left.
        """
        link, old = self._link, self.group
        self.group = None
        if not self.taken:
            self._faults.at("before-ready")
            link.send("ready")
        while True:
            newest = link.await_newer(self._tried)
            if newest is not None and not self.taken and link.worker not in newest.workers:
                self._tried = newest.generation  # a generation of the others; this worker's is still to come
                continue
            if newest is None or link.worker not in newest.workers:
                if old is not None:
                    old.leave()
                self.leave(save=self._must_save(newest, gone, known=old is not None))
                return
            self._tried = newest.generation
            try:
                group = self._form(newest)
            except Abandoned as reason:
                if self._nothing_to_keep:
                    self.leave(save=False)
                link.send("broken", generation=newest.generation, detail=str(reason))
                continue
            if old is not None:
                old.leave()
            self.group, self._formed = group, newest
            self.rank, self.world = group.rank, group.world
            self._checkpoints.members_are(newest.workers)
            return

    def _begin_forming(self, newest: Generation) -> None:
        workers = newest.workers
        if len(workers) > 1 and self._link.worker in workers:
            self._forming = Forming(newest, workers.index(self._link.worker), self._link.changed)

    def _form(self, newest: Generation) -> Group:
        link, rank = self._link, newest.workers.index(self._link.worker)
        here = {"step": self._state.step, "rank": rank, "generation": newest.generation}
        if self._faults.at("forming", **here):
            raise Abandoned("injected while forming")
        forming = self._forming
        if newest.world > 1 and (forming is None or forming.membership is not newest):
            raise Abandoned("a newer generation came before this one was formed")
        group = Group(
            newest, rank, link.changed, lambda: link.newer_than(newest.generation) or self._nothing_to_keep, forming
        )
        try:
            self._synchronise(group)
            if self._faults.at("formed", **here):
                raise Abandoned("injected once formed")
        except Abandoned:
            group.leave()
            raise
        # Once formed, only a death ends a wait before its time: at a change without one all switch at a boundary.
        group.stale = lambda: link.aborted(newest.generation)
        return group

    def _synchronise(self, group: Group) -> None:
        """Whoever lacks the most advanced member's state receives it; where nobody has any, the first rank has."""
        state = self._state
        here = [state.step, state.position, int(state.begun)] if self._has_state else [-1, -1, 0]
        rows = group.gather([*here, *self._told()])
        self._check_scripts(group, [row[3:] for row in rows])
        steps = [row[0] for row in rows]
        self.furthest = max(row[1] for row in rows)
        if max(steps) < 0:
            if group.rank == 0:
                saved = self._checkpoints.newest()
                if saved is not None:
                    state.load(saved)
                elif self._overwritten:
                    raise no_first_values()
            steps[0] = 0
        for giver, receiver in (pair for turn in rounds(steps) for pair in turn):
            here = {"step": max(steps), "rank": group.rank, "generation": group.membership.generation}
            if group.rank == giver:
                tree = state.tree_for(rows[receiver][1])
                give(group, tree, receiver, lambda here=here: self._faults.at("giving", **here))
            elif group.rank == receiver:
                # Who has a state keeps it until the better one is there whole.
                room = None if self._has_state else state.room()
                self._overwritten = True
                state.load(receive(group, giver, lambda here=here: self._faults.at("receiving", **here), room))
                self.resumed |= not self._has_state and any(row[2] for row in rows)
                # At once: the givers may be gone before this generation holds.
                self._has_state = True
        self._has_state = True

    def _told(self) -> list[int]:
        """What members have to know of each other before they compare anything: `_check_scripts` takes it."""
        device = next((p.device for p in self._state.model.parameters()), torch.device("cpu"))
        return [number(repr(sorted(self._state.description().items())), 63), arithmetic(device)]

    def _check_scripts(self, group: Group, rows: Sequence[Sequence[int]]) -> None:
        """An error where the members' scripts have not made the same."""
        if len({description for description, _ in rows}) > 1:
            raise difference(
                group,
                "Session: the members' scripts do not make the same",
                self._state.description(),
                "Build model, data and session from what all members have: the same files, a fixed seed.",
            )
        group.exact = len({kind for _, kind in rows}) == 1
        if not group.exact and group.rank == 0:
            self._link.send(
                "note", text="the nodes do not compute alike to the last bit: floating tensors are not compared"
            )

    def _must_save(self, newest: Generation | None, gone: Sequence[int], *, known: bool) -> bool:
        """Whether nobody else may be left with this state. Where it is not `known` who is, each one saves."""
        formed = self._formed
        if formed is None:
            return False
        remaining = [worker for rank, worker in enumerate(formed.workers) if rank not in gone]
        if newest is not None and any(worker in newest.workers for worker in remaining):
            return False
        return not known or remaining[0] == self._link.worker

    def leave(self, *, save: bool) -> None:
        """End this worker's part at a boundary. Raises Left."""
        if save:
            self._checkpoints.save_now(self._state.step, self._state.tree_for(-1))
        self._link.beat_now()
        self._link.send("left", step=self._state.step)
        exit_quickly()
        raise Left

    def _leave_to_others(self, leave_by: float) -> None:
        """No boundary comes in time: go now, as soon as others are known to go on with the state that they have.

        They do this step again, as they would have to when this worker is ended, and its node is free at once.
        """
        link, group = self._link, self.group
        if group is None:
            return
        mine = group.membership
        with link.changed:
            link.changed.wait_for(lambda: link.newer_than(mine.generation), leave_by - _SAVING_S - time.monotonic())
        newest = link.newest()
        if newest is None or newest.generation == mine.generation or link.worker in newest.workers:
            return
        if set(mine.workers) & set(newest.workers):
            link.send("left", step=self._state.step)
            os._exit(0)

    def _leave_in_time(self, leave_by: float) -> None:
        """In a thread of its own: if no boundary comes in time and nobody else has the state, save the last boundary's.

        A step changes no parameter before its update, so the state of the last boundary is still there.
        """
        if self._pace.next_boundary_s > leave_by:
            self._leave_to_others(leave_by)
        time.sleep(max(0.0, leave_by - _SAVING_S - time.monotonic()))
        group, newest = self.group, self._link.newest()
        if group is None or not self._changing.acquire(timeout=max(0.0, leave_by - time.monotonic())):
            return
        others = set(group.membership.workers) - {self._link.worker}
        if others and (newest is None or others & set(newest.workers) or group.rank != 0):
            self._changing.release()
            return
        self._checkpoints.save_now(self._state.step, self._state.boundary_tree())
        self._link.send("left", step=self._state.step)
        os._exit(0)
