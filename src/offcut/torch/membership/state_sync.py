"""Brings the members of a job to the state that they need, and decides who saves it when members leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from offcut.errors import OffcutError
from offcut.membership.generation import Generation
from offcut.membership.leaving import Departure, others_go_on, saves_replica, saves_replica_in_time
from offcut.membership.state_givers import newest_step, transfer_rounds
from offcut.torch.membership.job_context import JobContext
from offcut.torch.membership.process_group import Group
from offcut.torch.membership.script_check import check_scripts, script_row
from offcut.torch.membership.state_checksum import Checksum, replica_checksum
from offcut.torch.membership.state_transfer import receive_state, send_state
from offcut.torch.state.checkpoint_layout import WholeState
from offcut.torch.state.checkpoints import Checkpoints
from offcut.torch.state.own_settings import OwnSettings, copied_step
from offcut.torch.state.training_state import TrainingState


class StateSync(Protocol):
    """One member's part in keeping the state where it is needed.

    `ReplicatedSync`: every member has the whole state. `LayeredSync` (in `offcut.torch.pipeline`): each has some layers
    of it. Methods that get a `group` are called by all its members at once, and raise Abandoned if it broke.
    """

    @property
    def step(self) -> int:
        """The last step that this member has applied."""
        ...

    @property
    def has_state(self) -> bool:
        """Whether this member has a state of the training: made at its beginning, or taken over from others."""
        ...

    @property
    def resumed(self) -> bool:
        """Whether this worker began with the state of members whose scripts had come to their first batch."""
        ...

    @property
    def furthest(self) -> int:
        """The furthest `TrainingState.position` of a member when the generation formed."""
        ...

    @property
    def others_suffice(self) -> bool:
        """Whether the other members can always go on without what this member has."""
        ...

    def synchronise(self, group: Group) -> None:
        """Bring all members of a forming generation to one step, each with the part of the state that it needs."""
        ...

    def checksum(self, group: Group) -> Checksum | None:
        """Return the checksum that must be equal on all members; None where they have different parts of the state."""
        ...

    def hand_over(self, group: Group, leaving: Sequence[int]) -> Sequence[int]:
        """Let the members that stay take over what only leaving ones have, at a boundary.

        Args:
            group: the members of the generation that ends.
            leaving: the ranks that are known to leave.

        Returns:
            All ranks that leave.
        """
        ...

    def must_save(self, departure: Departure) -> bool:
        """Return whether this worker saves its state when it leaves at a boundary."""
        ...

    def share(self) -> Any:
        """Return what this member saves in a checkpoint at this boundary; its tensors are the living ones."""
        ...

    def save(self) -> None:
        """Save all that this member has, at a boundary."""
        ...

    def save_in_time(self, last: Generation, newest: Generation | None, *, broke: bool) -> bool:
        """Save the state of the last boundary, between two boundaries, if no other member is known to go on with it.

        Args:
            last: the last generation that formed.
            newest: the newest generation that this worker knows of.
            broke: whether `last` broke, so that its other members may be gone.

        Returns:
            Whether it was saved.
        """
        ...

    def save_at_end(self, group: Group) -> None:
        """Save the state for the end of the training."""
        ...


def no_first_values() -> OffcutError:
    """Return the error for a training that has to begin when the values that the script made are overwritten."""
    return OffcutError(
        "A state was received in part, its givers are gone, and there is no checkpoint.",
        next_step="The job begins again with another worker.",
    )


def join_with_replica(context: JobContext, state: TrainingState) -> tuple[ReplicatedSync, Checkpoints[dict[str, Any]]]:
    """Return how a member of a data-parallel job gets its state, and how it keeps checkpoints of it.

    Args:
        context: the job, as this worker was told of it.
        state: the training's state.
    """
    checkpoints = Checkpoints(
        context.checkpoints,
        context.checkpoint_age_s,
        context.note,
        WholeState(),
        context.faults,
        context.mark.overtaken_by,
    )
    return ReplicatedSync(context, state, checkpoints), checkpoints


class ReplicatedSync:
    """For data-parallel jobs, in which every member has the whole state."""

    others_suffice = True

    def __init__(self, context: JobContext, state: TrainingState, checkpoints: Checkpoints[dict[str, Any]]) -> None:
        self.has_state = False
        self.resumed = False
        self.furthest = -1
        self._context = context
        self._state = state
        self._checkpoints = checkpoints
        #: The values that the script began with are gone.
        self._overwritten = False

    @property
    def step(self) -> int:
        """See `StateSync`."""
        return self._state.step

    def synchronise(self, group: Group) -> None:
        """Send the most advanced member's state to all that lack it.

        If no member has a state, the first rank reads the newest checkpoint, or begins with what its script has made.
        """
        state, faults = self._state, self._context.faults
        here = [state.step, state.position, int(state.begun)] if self.has_state else [-1, -1, 0]
        rows = group.gather([*here, *script_row(state)])
        check_scripts(group, state, [row[3:] for row in rows], self._context.note)
        steps = [row[0] for row in rows]
        self.furthest = max(row[1] for row in rows)
        if newest_step(steps) < 0:
            if group.rank == 0:
                self._begin()
            steps[0] = 0
        where = {"step": newest_step(steps), "rank": group.rank, "generation": group.membership.generation}
        for giver, receiver in (pair for pairs in transfer_rounds(steps) for pair in pairs):
            if group.rank == giver:
                send_state(group, state.tree_for(rows[receiver][1]), receiver, lambda: faults.visit("giving", **where))
            elif group.rank == receiver:
                # A member that has a state keeps it until the better one has arrived completely.
                room = None if self.has_state else state.room()
                self._overwritten = True
                state.load(receive_state(group, giver, lambda: faults.visit("receiving", **where), room))
                self.resumed |= not self.has_state and any(row[2] for row in rows)
                # Set before the generation is confirmed, because the givers may be gone by then.
                self.has_state = True
        self.has_state = True

    def _begin(self) -> None:
        saved = self._checkpoints.read_newest(self._state.check_fits)
        if saved is not None:
            own = None
            if saved["progress"]["step"] == copied_step(self._context.checkpoints):
                own = OwnSettings(self._state.optimizers, self._state.registered)
            self._state.load(saved)
            if own is not None:
                own.restore()
        elif self._overwritten:
            raise no_first_values()

    def checksum(self, group: Group) -> Checksum | None:
        """See `StateSync`."""
        return replica_checksum(self._state, exact=group.exact)

    def hand_over(self, group: Group, leaving: Sequence[int]) -> Sequence[int]:
        """Return `leaving`: the members that stay have all of the state."""
        return leaving

    def must_save(self, departure: Departure) -> bool:
        """See `StateSync`."""
        return saves_replica(departure)

    def share(self) -> dict[str, Any]:
        """Return the whole state."""
        return self._state.tree_for(-1)

    def save(self) -> None:
        """See `StateSync`."""
        self._checkpoints.save_now(self._state.step, self.share())

    def save_in_time(self, last: Generation, newest: Generation | None, *, broke: bool) -> bool:
        """See `StateSync`.

        A step changes no parameter before its update, so the state of the last boundary is still there.
        """
        worker = self._context.link.worker
        saves = not others_go_on(worker, last, newest) if broke else saves_replica_in_time(worker, last, newest)
        if not saves:
            return False
        self._checkpoints.save_now(self._state.step, self._state.boundary_tree())
        return True

    def save_at_end(self, group: Group) -> None:
        """Save the state on the first member."""
        if group.rank == 0:
            self.save()
