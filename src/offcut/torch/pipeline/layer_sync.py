"""Brings the members of a pipeline job to the layers that they need, and decides who saves layers at a leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from offcut.errors import InputError, OffcutError
from offcut.membership.generation import Generation
from offcut.membership.leaving import Departure, layers_only_here, saves_layers
from offcut.membership.state_givers import newest_step, transfer_rounds
from offcut.pipeline import layer_moves
from offcut.pipeline.plan_set import PlanSet
from offcut.torch.membership.job_context import JobContext
from offcut.torch.membership.leaving_ranks import ranks_that_leave
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.membership.script_check import SCRIPT_NUMBERS, check_scripts, script_row
from offcut.torch.membership.state_checksum import Checksum
from offcut.torch.membership.state_sync import no_first_values
from offcut.torch.membership.state_transfer import receive_state, send_state
from offcut.torch.pipeline.layer_state import LayerState, flagged_layers, layer_flags
from offcut.torch.pipeline.member_stages import MemberStages
from offcut.torch.pipeline.pipeline_step import PipelineStep
from offcut.torch.state.checkpoint_layout import ByLayer, SavedLayers
from offcut.torch.state.checkpoints import Checkpoints

#: How long members wait for what departing ones save, and how often they look.
_RESCUE_S, _LOOK_S = 10.0, 0.02
#: The numbers that a member sends when a generation forms: these, those of `script_row`, and a flag for each layer.
_STEP, _LAYER_STEP, _PREPARED, _CHECKPOINT, _POSITION, _BEGUN, _SCRIPT = range(7)
_LAYERS = _SCRIPT + SCRIPT_NUMBERS
_NOT_OF_THIS_TRAINING = InputError(
    "PipelineSession: the job's checkpoints are of another training, as another member's log says.",
    next_step="A job's model stays the same in all its runs.",
)


class LayeredSync:
    """See `StateSync`: every member has some layers of the state, and the part of it that belongs to no layer.

    Args:
        context: the connection to the agent.
        state: this member's part of the state.
        stages: the stages whose layers `state` holds.
        pipeline_step: applies a step whose vote broke here.
        plans: the plan for each number of members.
        checkpoints: reads and writes layers.
    """

    others_suffice = False

    def __init__(
        self,
        context: JobContext,
        state: LayerState,
        stages: MemberStages,
        pipeline_step: PipelineStep,
        plans: PlanSet,
        checkpoints: Checkpoints[SavedLayers],
    ) -> None:
        self.has_state = False
        self.resumed = False
        self.furthest = -1
        self._context = context
        self._state = state
        self._stages = stages
        self._pipeline_step = pipeline_step
        self._plans = plans
        self._checkpoints = checkpoints

    @property
    def step(self) -> int:
        """See `StateSync`."""
        return self._state.step

    # -- a generation forms -------------------------------------------------------------------------------------------

    def synchronise(self, group: Group) -> None:
        """Bring all members to one step, and every layer to the members that the plan for this size puts it on."""
        state, mine = self._state, group.rank
        plan = self._plans.plan_for(group.world)
        need = layer_moves.layers_by_rank(plan)
        rows = group.gather(
            [
                state.step if self.has_state else -1,
                state.layer_step,
                int(self._pipeline_step.prepared),
                self._checkpoints.newest_step(),
                state.position if self.has_state else -1,
                int(state.begun),
                *script_row(state),
                *layer_flags(state.held, self._plans.layers),
            ]
        )
        check_scripts(group, state, [row[_SCRIPT:_LAYERS] for row in rows], self._context.note)
        top = newest_step([row[_STEP] for row in rows])
        self.furthest = max(row[_POSITION] for row in rows)
        if top < 0:
            self._begin(group, rows[0][_CHECKPOINT], need[mine])
        else:
            have = self._common_step(group, rows, top)
            missing = layer_moves.missing_layers(have, self._plans.layers)
            if not missing or self._rescued(group, top, missing):
                for i in sorted(missing & need[mine]):
                    state.load_layer(i, self._checkpoints.piece(top, ByLayer.name(i)))
                have = [layers | (missing & need[rank]) for rank, layers in enumerate(have)]
                self._move(group, have, need)
            else:
                self._roll_back(group, rows[0][_CHECKPOINT], need[mine], missing)
        # Only once every layer has arrived may members drop those that they do not need.
        group.gather([0])
        self._stages.place(group, plan)
        self._pipeline_step.prepared = False
        state.drop_layers(state.held - need[mine])

    def _begin(self, group: Group, saved: int, need: layer_moves.Layers) -> None:
        """Begin, because no member has a state: with the newest checkpoint, or the values that the script has made."""
        state = self._state
        if self._read(group, saved, need) < 0 and not need <= state.held:
            # This member dropped layers to receive another member's, and that one has died.
            raise no_first_values()
        state.drop_layers(state.held - need)
        self.has_state = True

    def _read(self, group: Group, saved: int, need: layer_moves.Layers) -> int:
        """Load the newest checkpoint that all members can read.

        Args:
            group: the members; all call this at once.
            saved: the step of the checkpoint to try first.
            need: the layers that this member needs.

        Returns:
            The step of the checkpoint that was loaded; -1 if there is none.

        Raises:
            InputError: on all members; there are only checkpoints of another model, or of another version of offcut.
        """
        state, checkpoints = self._state, self._checkpoints
        # A checkpoint of a later step could be mistaken for one that the members write after the fallback.
        checkpoints.finish_writing()
        pieces = [ByLayer.COMMON, *map(ByLayer.name, sorted(need))]
        found: dict[str, dict[str, Any]] = {}
        unfit: InputError | None = None
        while saved >= 0:
            read = checkpoints.read(saved, pieces, lambda trees: self._check_saved(trees, need))
            rows = group.gather(
                [int(isinstance(read, dict)), checkpoints.before(saved), int(isinstance(read, InputError))]
            )
            if isinstance(read, dict):
                found = read
            if all(row[0] for row in rows):
                break
            if any(row[2] for row in rows):
                unfit = unfit or (read if isinstance(read, InputError) else _NOT_OF_THIS_TRAINING)
            # The first member decides, because the others may not see the directory's newest content yet.
            saved = rows[0][1]
        if saved < 0 and unfit is not None:
            raise unfit
        checkpoints.go_back(saved, first=group.rank == 0)
        if saved < 0:
            return -1
        for i in sorted(need):
            state.load_layer(i, found[ByLayer.name(i)])
        state.load_common(found[ByLayer.COMMON])
        state.layer_step = saved
        return saved

    def _check_saved(self, trees: dict[str, dict[str, Any]], layers: layer_moves.Layers) -> None:
        """Raise InputError if pieces of a checkpoint are not of this training."""
        for i in layers:
            self._state.check_layer(i, trees[ByLayer.name(i)])
        self._state.check_common(trees[ByLayer.COMMON])

    def _common_step(self, group: Group, rows: list[list[int]], top: int) -> list[frozenset[int]]:
        """Bring every member to step `top`; return the layers that each has at that step, by rank.

        Where a vote broke between members, some have applied its step and the others are ready to: they apply it now.
        Layers of an older step cannot be used.
        """
        state = self._state

        def late(row: list[int]) -> bool:
            return row[_LAYER_STEP] == top - 1 and bool(row[_PREPARED])

        def useful(row: list[int]) -> bool:
            return row[_STEP] >= 0 and (row[_LAYER_STEP] == top or late(row))

        mine = rows[group.rank]
        if not useful(mine):
            state.drop_layers(state.held)
        for giver, receiver in (pair for pairs in transfer_rounds([row[_STEP] for row in rows]) for pair in pairs):
            if group.rank == giver:
                send_state(
                    group, state.common_for(rows[receiver][_POSITION]), receiver, self._visit("giving", group, top)
                )
            elif group.rank == receiver:
                common = receive_state(group, giver, self._visit("receiving", group, top))
                if late(mine):
                    # Before `load_common`, because the step has to be applied with the settings that it began with.
                    self._pipeline_step.apply_late(common["progress"]["norm_squared"])
                state.load_common(common)
                state.layer_step = top
                self.resumed |= not self.has_state and any(row[_BEGUN] for row in rows)
                self.has_state = True
        return [flagged_layers(row[_LAYERS:]) if useful(row) else frozenset() for row in rows]

    def _visit(self, point: str, group: Group, step: int) -> Callable[[], bool]:
        where = {"step": step, "rank": group.rank, "generation": group.membership.generation}
        return lambda: self._context.faults.visit(point, **where)

    def _move(self, group: Group, have: Sequence[layer_moves.Layers], need: Sequence[layer_moves.Layers]) -> None:
        """Send every member the layers that it needs and lacks, directly from a member that has them."""
        state = self._state
        for move in (move for moved in layer_moves.rounds_of_moves(have, need, state.layer_bytes) for move in moved):
            if group.rank == move.giver:
                tree = {str(i): state.layer(i) for i in move.layers}
                send_state(group, tree, move.receiver, self._visit("giving", group, state.step))
            elif group.rank == move.receiver:
                tree = receive_state(group, move.giver, self._visit("receiving", group, state.step))
                for i in move.layers:
                    state.load_layer(i, tree[str(i)])

    def _rescued(self, group: Group, step: int, missing: layer_moves.Layers) -> bool:
        """Wait until members that left without handing `missing` over have saved it.

        Returns:
            Whether all members can read it.
        """
        generation = group.membership
        give_up_s = time.monotonic() + (_RESCUE_S if generation.departing else 0.0)
        pieces = [ByLayer.name(i) for i in missing]
        while not self._checkpoints.has(step, pieces) and time.monotonic() < give_up_s:
            if group.stale():
                raise Abandoned("a newer generation came while layers were being written")
            time.sleep(_LOOK_S)
        return all(row[0] for row in group.gather([int(self._checkpoints.has(step, pieces))]))

    def _roll_back(self, group: Group, saved: int, need: layer_moves.Layers, missing: layer_moves.Layers) -> None:
        """Go back to the newest checkpoint, on all members, because the layers `missing` are lost."""
        self._state.drop_layers(self._state.held)
        saved = self._read(group, saved, need)
        if saved < 0:
            raise OffcutError(
                f"Layers {', '.join(map(str, sorted(missing)))} were lost, and no checkpoint can be read.",
                next_step="The job starts again from its beginning.",
            )
        self.furthest = self._state.position
        # The checkpoint has what the script did then: what it does until its next batch does not count.
        self._state.copy_script_state()
        self._context.note(f"a stage was lost: all members go back to the checkpoint of step {saved}")

    # -- leaving ------------------------------------------------------------------------------------------------------

    def hand_over(self, group: Group, leaving: Sequence[int]) -> Sequence[int]:
        """Let the members that stay take over the layers that only leaving ones have.

        Args:
            group: the members of the generation that ends; all call this at once.
            leaving: the ranks that are known to leave.

        Returns:
            All ranks that leave.

        Raises:
            Abandoned: the generation broke.
        """
        going = ranks_that_leave(group, self._context.link, leaving)
        stay = [rank for rank in range(group.world) if rank not in going]
        if going and stay:
            self._hand_over(group, stay)
        return going

    def _hand_over(self, group: Group, stay: list[int]) -> None:
        """Let the ranks `stay` take over the layers that only the others have.

        A layer goes to the rank that is likely to have it in the next plan. Where there is no plan for as many members
        as stay, the controller will soon leave out the last of them, so these count as leaving.
        """
        have = layer_moves.layers_by_rank(self._plans.plan_for(group.world))
        wish: list[layer_moves.Layers] = [frozenset() for _ in have]
        fitting = [n for n in self._plans.devices if n <= len(stay)]
        if fitting:
            stay = stay[: fitting[-1]]
            for rank, layers in zip(stay, layer_moves.layers_by_rank(self._plans.plan_for(len(stay))), strict=True):
                wish[rank] = layers
        going = [rank for rank in range(group.world) if rank not in stay]
        takes = layer_moves.layers_to_take_over(have, going, wish, self._state.layer_bytes)
        self._move(group, have, [held | takes[rank] for rank, held in enumerate(have)])

    def must_save(self, departure: Departure) -> bool:
        """See `StateSync`."""
        return saves_layers(departure)

    # -- saving -------------------------------------------------------------------------------------------------------

    def checksum(self, group: Group) -> Checksum | None:
        """Return None: members have different layers, which `PipelineStep` compares."""
        return None

    def share(self) -> SavedLayers:
        """Return the layers that this member is the first to hold; on the holder of the first layer the common part."""
        state, owned = self._state, self._stages.owned
        return SavedLayers(state.common_for(-1) if 0 in owned else None, {i: state.layer(i) for i in owned})

    def save(self) -> None:
        """See `StateSync`."""
        self._write(self._state.held)

    def save_in_time(self, last: Generation, newest: Generation | None, *, broke: bool) -> bool:
        """Save the layers that no other member has; all that this one has if the others may be gone.

        None of them changes between a boundary and the vote, which waits until this has ended.
        """
        if broke:
            self._write(self._state.held)
            return True
        by_rank = layer_moves.layers_by_rank(self._plans.plan_for(last.world))
        only = layers_only_here(by_rank, last.workers.index(self._context.link.worker), self._state.held)
        if only:
            self._write(only)
        return bool(only)

    def save_at_end(self, group: Group) -> None:
        """Save every layer on the first member that holds it, and publish once all are written.

        Raises:
            OffcutError: on all members, if those that should have the same have not.
            Abandoned: the generation broke.
        """
        self._pipeline_step.compare_at_end(group)
        step = self._state.step
        self._checkpoints.save_now(step, self.share())
        group.gather([0])
        self._checkpoints.publish(step)

    def _write(self, layers: layer_moves.Layers) -> None:
        state = self._state
        saved = SavedLayers(state.boundary_common(), {i: state.layer(i) for i in layers})
        self._checkpoints.save_now(state.layer_step, saved)
