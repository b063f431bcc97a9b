"""Brings the members of a job with sharded optimizer state to the state that each needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from offcut.errors import InputError, OffcutError
from offcut.membership.generation import Generation
from offcut.membership.leaving import Departure, layers_only_here, saves_layers
from offcut.membership.state_givers import newest_step, transfer_rounds
from offcut.membership.state_shards import ShardMove, ShardPlan, plan_shards
from offcut.torch.membership.job_context import JobContext
from offcut.torch.membership.leaving_ranks import ranks_that_leave
from offcut.torch.membership.process_group import Group
from offcut.torch.membership.script_check import SCRIPT_NUMBERS, check_scripts, script_row
from offcut.torch.membership.state_checksum import Checksum, replica_checksum
from offcut.torch.membership.state_sync import no_first_values
from offcut.torch.membership.state_transfer import receive_state, send_state
from offcut.torch.state.checkpoint_layout import ByLayer, SavedLayers
from offcut.torch.state.checkpoints import Checkpoints
from offcut.torch.state.optimizer_shards import OptimizerShards
from offcut.torch.state.training_state import TrainingState

#: The numbers that a member sends when a generation forms: these, those of `script_row`, and a flag for each shard.
_STEP, _PREPARED, _CHECKPOINT, _POSITION, _BEGUN, _SCRIPT = range(6)
_SHARDS = _SCRIPT + SCRIPT_NUMBERS
_NOT_OF_THIS_TRAINING = InputError(
    "offcut.torch: the job's checkpoints are of another training, as another member's log says.",
    next_step="A job's model and options stay the same in all its runs.",
)


def join_with_shards(
    context: JobContext, state: TrainingState, shards: OptimizerShards
) -> tuple[ShardedSync, Checkpoints[SavedLayers]]:
    """Return how a member of a job with sharded optimizer state gets its state, and how it keeps checkpoints of it.

    Args:
        context: the job, as this worker was told of it.
        state: the training's state.
        shards: this member's shards of the optimizers' state.
    """
    checkpoints = Checkpoints(
        context.checkpoints,
        context.checkpoint_age_s,
        context.note,
        ByLayer(len(shards.sizes)),
        context.faults,
        context.mark.overtaken_by,
    )
    return ShardedSync(context, state, shards, checkpoints), checkpoints


class ShardedSync:
    """See `StateSync`: every member has all of the state but the optimizers', of which each holds some shards.

    Args:
        context: the connection to the agent.
        state: what all members have.
        shards: what this member holds.
        checkpoints: has a share for each shard.
    """

    others_suffice = False

    def __init__(
        self,
        context: JobContext,
        state: TrainingState,
        shards: OptimizerShards,
        checkpoints: Checkpoints[SavedLayers],
    ) -> None:
        self.has_state = False
        self.resumed = False
        self.furthest = -1
        self._context = context
        self._state = state
        self._shards = shards
        self._checkpoints = checkpoints
        #: The values that the script began with are gone.
        self._overwritten = False
        #: This member's number in the last generation that formed.
        self._rank = 0

    @property
    def step(self) -> int:
        """See `StateSync`."""
        return self._state.step

    # -- a generation forms -------------------------------------------------------------------------------------------

    def synchronise(self, group: Group) -> None:
        """Bring all members to one step, and every shard to the members that hold it from now on."""
        state, shards = self._state, self._shards
        rows = group.gather(
            [
                state.step if self.has_state else -1,
                int(shards.prepared),
                self._checkpoints.newest_step(),
                state.position if self.has_state else -1,
                int(state.begun),
                *script_row(state),
                *(int(shard in shards.held) for shard in range(len(shards.sizes))),
            ]
        )
        check_scripts(group, state, [row[_SCRIPT:_SHARDS] for row in rows], self._context.note)
        self.furthest = max(row[_POSITION] for row in rows)
        top = newest_step([row[_STEP] for row in rows])
        if top < 0:
            plan = self._begin(group, rows)
        else:
            held = self._common_step(group, rows, top)
            plan = plan_shards(held, shards.sizes, copies=shards.copies)
            if plan.lost and top > 0:
                plan = self._roll_back(group, rows[0][_CHECKPOINT])
            else:
                self._move(group, plan.moves)
        # Only once every shard has arrived may members drop those that they do not hold any more.
        group.gather([0])
        shards.place(plan, group.rank)
        self._rank = group.rank

    def _begin(self, group: Group, rows: list[list[int]]) -> ShardPlan:
        """Begin, because no member has a state: from the newest checkpoint, or as the first member's script does."""
        saved, plan = self._read(group, rows[0][_CHECKPOINT])
        if saved < 0:
            if group.rank == 0 and self._overwritten:
                raise no_first_values()
            self._receive_common(group, rows, [0, *[-1] * (group.world - 1)])
        self.has_state = True
        return plan

    def _read(self, group: Group, saved: int) -> tuple[int, ShardPlan]:
        """Load the newest checkpoint that all members can read.

        Args:
            group: the members; all call this at once.
            saved: the step of the checkpoint to try first.

        Returns:
            The step of the checkpoint that was loaded, -1 if there is none; and who holds what.

        Raises:
            InputError: on all members; there are only checkpoints of another training, or of another version of offcut.
        """
        state, shards, checkpoints = self._state, self._shards, self._checkpoints
        shards.drop(range(len(shards.sizes)))
        plan = plan_shards([frozenset()] * group.world, shards.sizes, copies=shards.copies)
        need = sorted(plan.held_by(group.rank))
        # A checkpoint of a later step could be mistaken for one that the members write after the fallback.
        checkpoints.finish_writing()
        found: dict[str, dict[str, Any]] = {}
        unfit: InputError | None = None
        while saved >= 0:
            read = checkpoints.read(
                saved, [ByLayer.COMMON, *map(ByLayer.name, need)], lambda trees: state.check_fits(trees[ByLayer.COMMON])
            )
            numbers = [int(isinstance(read, dict)), checkpoints.before(saved), int(isinstance(read, InputError))]
            answers = group.gather(numbers)
            if isinstance(read, dict):
                found = read
            if all(answer[0] for answer in answers):
                break
            if any(answer[2] for answer in answers):
                unfit = unfit or (read if isinstance(read, InputError) else _NOT_OF_THIS_TRAINING)
            # The first member decides, because the others may not see the directory's newest content yet.
            saved = answers[0][1]
        if saved < 0 and unfit is not None:
            raise unfit
        checkpoints.go_back(saved, first=group.rank == 0)
        if saved >= 0:
            self._overwritten = True
            state.load(found[ByLayer.COMMON])
            for shard in need:
                shards.load_shard(shard, found[ByLayer.name(shard)])
        return saved, plan

    def _common_step(self, group: Group, rows: list[list[int]], top: int) -> list[frozenset[int]]:
        """Bring every member to step `top`; return the shards that each has at that step, by rank.

        If one member has applied a step, each of the others has made its part of the update, and makes it again now
        where it has gone back. Shards of an older step cannot be used.
        """
        shards = self._shards

        def late(row: list[int]) -> bool:
            return row[_STEP] == top - 1 and bool(row[_PREPARED])

        def useful(row: list[int]) -> bool:
            return row[_STEP] == top or late(row)

        mine = rows[group.rank]
        if late(mine):
            shards.apply_late()
        if not useful(mine):
            shards.drop(shards.held)
        self._receive_common(group, rows, [row[_STEP] for row in rows])
        return [
            frozenset(shard for shard, there in enumerate(row[_SHARDS:]) if there) if useful(row) else frozenset()
            for row in rows
        ]

    def _receive_common(self, group: Group, rows: list[list[int]], steps: list[int]) -> None:
        """Send the most advanced member's state, without its shards, to all that lack it."""
        state, faults = self._state, self._context.faults
        where = {"step": newest_step(steps), "rank": group.rank, "generation": group.membership.generation}
        for giver, receiver in (pair for pairs in transfer_rounds(steps) for pair in pairs):
            if group.rank == giver:
                send_state(
                    group, state.tree_for(rows[receiver][_POSITION]), receiver, lambda: faults.visit("giving", **where)
                )
            elif group.rank == receiver:
                room = None if self.has_state else state.room()
                self._overwritten = True
                state.load(receive_state(group, giver, lambda: faults.visit("receiving", **where), room))
                self.resumed |= not self.has_state and any(row[_BEGUN] for row in rows)
                self.has_state = True

    def _move(self, group: Group, moves: Sequence[ShardMove]) -> None:
        """Send every member the shards that it is to hold and lacks; those of one giver and receiver together."""
        shards, faults = self._shards, self._context.faults
        where = {"step": self._state.step, "rank": group.rank, "generation": group.membership.generation}
        for giver, receiver in sorted({(move.giver, move.receiver) for move in moves}):
            moved = [move.shard for move in moves if (move.giver, move.receiver) == (giver, receiver)]
            if group.rank == giver:
                tree = {str(shard): shards.shard(shard) for shard in moved}
                send_state(group, tree, receiver, lambda: faults.visit("giving", **where))
            elif group.rank == receiver:
                tree = receive_state(group, giver, lambda: faults.visit("receiving", **where))
                for shard in moved:
                    shards.load_shard(shard, tree[str(shard)])

    def _roll_back(self, group: Group, saved: int) -> ShardPlan:
        """Go back to the newest checkpoint, on all members, because shards are lost."""
        saved, plan = self._read(group, saved)
        if saved < 0:
            raise OffcutError(
                "Optimizer state that only members held that have died is lost, and no checkpoint can be read.",
                next_step="The job starts again from its beginning. With optimizer_copies=2 the death of one member "
                "loses nothing.",
            )
        self.furthest = self._state.position
        # The checkpoint has what the script did then: what it does until its next batch does not count.
        self._state.copy_script_state()
        if group.rank == 0:
            self._context.note(f"optimizer state was lost: all members go back to the checkpoint of step {saved}")
        return plan

    # -- leaving ------------------------------------------------------------------------------------------------------

    def checksum(self, group: Group) -> Checksum | None:
        """Return the checksum of what all members have."""
        return replica_checksum(self._state, exact=group.exact)

    def hand_over(self, group: Group, leaving: Sequence[int]) -> Sequence[int]:
        """Let the members that stay take over the shards that only leaving ones hold.

        Args:
            group: the members of the generation that ends; all call this at once.
            leaving: the ranks that are known to leave.

        Returns:
            All ranks that leave.

        Raises:
            Abandoned: the generation broke.
        """
        plan = self._shards.plan
        going = ranks_that_leave(group, self._context.link, leaving)
        stay = [rank for rank in range(group.world) if rank not in going]
        if going and stay and plan is not None:
            held = [plan.held_by(rank) for rank in range(group.world)]
            kept = frozenset[int]().union(*(held[rank] for rank in stay))
            moves = plan_shards(held, self._shards.sizes, staying=stay).moves
            self._move(group, [move for move in moves if move.shard not in kept])
        return going

    def must_save(self, departure: Departure) -> bool:
        """See `StateSync`."""
        return saves_layers(departure)

    # -- saving -------------------------------------------------------------------------------------------------------

    def share(self) -> SavedLayers:
        """Return the shards that this member owns; on the owner of the first one what all members have too."""
        plan, state = self._shards.plan, self._state
        assert plan is not None, "no generation has formed"
        owned = [shard for shard, owner in enumerate(plan.owners) if owner == self._rank]
        return SavedLayers(state.tree_for(-1) if 0 in owned else None, self._trees(owned))

    def save(self) -> None:
        """See `StateSync`."""
        self._write(self._state.tree_for(-1), self._shards.held)

    def save_in_time(self, last: Generation, newest: Generation | None, *, broke: bool) -> bool:
        """Save the shards that no other member holds; all that this one holds if the others may be gone.

        None of them changes between a boundary and the reduce, which waits until this has ended.
        """
        only: Collection[int] = self._shards.held
        plan = self._shards.plan
        if not broke and plan is not None:
            held = [plan.held_by(rank) for rank in range(last.world)]
            only = layers_only_here(held, last.workers.index(self._context.link.worker), only)
        if only:
            self._write(self._state.boundary_tree(), only)
        return bool(only)

    def save_at_end(self, group: Group) -> None:
        """Save every shard on its owner, and publish once all are written. Raises Abandoned."""
        step = self._state.step
        self._checkpoints.save_now(step, self.share())
        group.gather([0])
        self._checkpoints.publish(step)

    def _write(self, common: dict[str, Any], shards: Collection[int]) -> None:
        self._checkpoints.save_now(self._state.step, SavedLayers(common, self._trees(shards)))

    def _trees(self, shards: Collection[int]) -> dict[int, dict[str, Any]]:
        return {shard: self._shards.shard(shard) for shard in sorted(shards)}
