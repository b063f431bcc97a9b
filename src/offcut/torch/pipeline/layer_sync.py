"""A worker's seat in a pipeline job: bringing survivors to one step, moving layers, handing them on before it goes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from offcut.errors import OffcutError
from offcut.pipeline import layer_moves
from offcut.pipeline.plan_set import PlanSet
from offcut.torch.membership.agent_link import AgentLink, Generation
from offcut.torch.membership.member import Member, no_first_values
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.membership.state_transfer import give, receive, rounds
from offcut.torch.membership.step_timing import StepTiming
from offcut.torch.pipeline.layer_checkpoints import LayerCheckpoints
from offcut.torch.pipeline.layer_state import LayerState, flags, layers_of
from offcut.torch.pipeline.pipeline_step import PipelineStep
from offcut.torch.testing.fault_injection import Faults

#: How long before it must be gone a worker stops waiting for its step boundary and saves the last one instead.
_SAVING_S = 0.6
#: How long members wait for what departing ones write down, and how often they look.
_RESCUE_S, _LOOK_S = 10.0, 0.02
#: What a member says of itself when a generation forms, before the flags of its layers.
_STEP, _LAYER_STEP, _PREPARED, _CHECKPOINT, _POSITION, _BEGUN, _TOLD, _, _LAYERS = range(9)


class PipelineMember(Member):
    """`work` computes what `state` holds; `plans` say what that is for each number of members."""

    def __init__(
        self,
        link: AgentLink,
        state: LayerState,
        work: PipelineStep,
        plans: PlanSet,
        parts: LayerCheckpoints,
        changing: threading.Lock,
        faults: Faults,
        pace: StepTiming,
    ) -> None:
        super().__init__(link, state, parts, changing, faults, pace)
        self._placed = state
        self._work = work
        self._plans = plans
        self._parts = parts

    # -- a generation forms
    # -----------------------------------------------------------------------------------------------

    def _synchronise(self, group: Group) -> None:
        """All at one step, every layer where the plan for this size wants it, and nothing moved that was there."""
        state, mine = self._placed, group.rank
        plan = self._plans.plan_for(group.world)
        need = layer_moves.layers_by_rank(plan)
        rows = group.gather(
            [
                state.step if self._has_state else -1,
                state.layer_step,
                int(self._work.prepared),
                self._parts.newest(),
                state.position if self._has_state else -1,
                int(state.begun),
                *self._told(),
                *flags(state.held, self._plans.layers),
            ]
        )
        self._check_scripts(group, [row[_TOLD:_LAYERS] for row in rows])
        top = max(row[_STEP] for row in rows)
        self.furthest = max(row[_POSITION] for row in rows)
        if top < 0:
            self._begin(group, rows[0][_CHECKPOINT], need[mine])
        else:
            have = self._common_step(group, rows, top)
            missing = layer_moves.missing_layers(have, self._plans.layers)
            if not missing or self._rescued(group, top, missing):
                for i in sorted(missing & need[mine]):
                    state.take(i, self._parts.layer(top, i))
                have = [layers | (missing & need[rank]) for rank, layers in enumerate(have)]
                self._move(group, have, need)
            else:
                self._roll_back(group, rows[0][_CHECKPOINT], need[mine], missing)
        # Every layer is at its place: whoever has one too many may let it go.
        group.gather([0])
        self._work.place(group, plan)
        state.release(state.held - need[mine])

    def _begin(self, group: Group, saved: int, need: layer_moves.Layers) -> None:
        """Nobody has a state: from the newest checkpoint, or from the values that the script has made."""
        state = self._placed
        if self._read(group, saved, need) < 0 and not need <= state.held:
            # It was about to receive another's, and that one is gone.
            raise no_first_values()
        state.release(state.held - need)
        self._has_state = True

    def _read(self, group: Group, saved: int, need: layer_moves.Layers) -> int:
        """Become what the newest checkpoint says that all members can read, that of step `saved` or one before.

        Its step; -1 where there is none.
        """
        state, parts = self._placed, self._parts
        found = None
        while saved >= 0:
            found = parts.read(saved, need)
            rows = group.gather([int(found is not None), parts.before(saved)])
            if all(row[0] for row in rows):
                break
            # The first member's word, for not all may see the directory as it is at this moment.
            saved = rows[0][1]
        if group.rank == 0:
            parts.put_aside(saved)
        if saved < 0 or found is None:
            return -1
        common, layers = found
        for i, tree in sorted(layers.items()):
            state.take(i, tree)
        state.load_common(common)
        state.layer_step = saved
        return saved

    def _common_step(self, group: Group, rows: list[list[int]], top: int) -> list[frozenset[int]]:
        """Bring every member to step `top`; the layers that each has at it.

        Where a vote broke between members, some have applied its step and the others are ready to: they do now. What a
        member has of an older step is of no use.
        """
        state = self._placed

        def late(row: list[int]) -> bool:
            return row[_LAYER_STEP] == top - 1 and bool(row[_PREPARED])

        def useful(row: list[int]) -> bool:
            return row[_STEP] >= 0 and (row[_LAYER_STEP] == top or late(row))

        mine = rows[group.rank]
        if not useful(mine):
            state.release(state.held)
        for giver, receiver in (pair for turn in rounds([row[_STEP] for row in rows]) for pair in turn):
            if group.rank == giver:
                give(group, state.common_for(rows[receiver][_POSITION]), receiver, self._visit("giving", group, top))
            elif group.rank == receiver:
                common = receive(group, giver, self._visit("receiving", group, top))
                if late(mine):
                    # With the settings that the step began with: only then come those after it.
                    self._work.apply_late(common["progress"]["norm_squared"])
                state.load_common(common)
                state.layer_step = top
                self.resumed |= not self._has_state and any(row[_BEGUN] for row in rows)
                self._has_state = True
        return [layers_of(row[_LAYERS:]) if useful(row) else frozenset() for row in rows]

    def _visit(self, point: str, group: Group, step: int) -> Any:
        here = {"step": step, "rank": group.rank, "generation": group.membership.generation}
        return lambda: self._faults.at(point, **here)

    def _move(self, group: Group, have: Sequence[layer_moves.Layers], need: Sequence[layer_moves.Layers]) -> None:
        """Everybody gets what it needs and lacks, directly from a member that has it."""
        state = self._placed
        for move in (move for turn in layer_moves.rounds_of_moves(have, need, state.layer_bytes) for move in turn):
            if group.rank == move.giver:
                tree = {str(i): state.layer(i) for i in move.layers}
                give(group, tree, move.receiver, self._visit("giving", group, state.step))
            elif group.rank == move.receiver:
                tree = receive(group, move.giver, self._visit("receiving", group, state.step))
                for i in move.layers:
                    state.take(i, tree[str(i)])

    def _rescued(self, group: Group, step: int, missing: layer_moves.Layers) -> bool:
        """Whether those who left without handing `missing` on have written it down, and all members can read it."""
        generation = group.membership
        give_up_s = time.monotonic() + (_RESCUE_S if generation.departing else 0.0)
        while not self._parts.has(step, missing) and time.monotonic() < give_up_s:
            if self._link.newer_than(generation.generation):
                raise Abandoned("a newer generation came while layers were being written")
            time.sleep(_LOOK_S)
        return all(row[0] for row in group.gather([int(self._parts.has(step, missing))]))

    def _roll_back(self, group: Group, saved: int, need: layer_moves.Layers, missing: layer_moves.Layers) -> None:
        self._placed.release(self._placed.held)
        saved = self._read(group, saved, need)
        if saved < 0:
            raise OffcutError(
                f"Layers {', '.join(map(str, sorted(missing)))} were lost, and no checkpoint can be read.",
                next_step="The job starts anew.",
            )
        self._link.send("note", text=f"a stage was lost: all members go back to the checkpoint of step {saved}")

    # -- leaving ------------------------------------------------------------------------------------------------------

    def switch(self, leaving: Sequence[int]) -> None:
        """Whoever leaves at this boundary hands on what nobody else has; the others go to the next generation."""
        group = self.group
        assert group is not None
        newest = None
        if group.rank not in leaving:
            newest = self._link.await_newer(group.membership.generation) if not leaving else self._link.newest()
        out = self._link.leaving or (newest is not None and self._is_out(newest, group))
        try:
            going = [rank for rank, row in enumerate(group.gather([int(out)])) if row[0]]
            stay = [rank for rank in range(group.world) if rank not in going]
            if going and stay:
                self._hand_over(group, stay)
        except Abandoned as reason:
            self.abandon(str(reason))
            self.enter_next(leaving)
            return
        if group.rank in going:
            self.leave(save=not stay)
        self.enter_next(going)

    def _is_out(self, newest: Generation, group: Group) -> bool:
        return newest.generation > group.membership.generation and self._link.worker not in newest.workers

    def _hand_over(self, group: Group, stay: list[int]) -> None:
        """Those who stay take what only the others have: what the next plan is likely to put on them, at once.

        Where no plan is for all who stay, the controller will soon leave out the last of them: they count as going.
        """
        have = layer_moves.layers_by_rank(self._plans.plan_for(group.world))
        wish: list[layer_moves.Layers] = [frozenset() for _ in have]
        fitting = [n for n in self._plans.devices if n <= len(stay)]
        if fitting:
            stay = stay[: fitting[-1]]
            for rank, layers in zip(stay, layer_moves.layers_by_rank(self._plans.plan_for(len(stay))), strict=True):
                wish[rank] = layers
        going = [rank for rank in range(group.world) if rank not in stay]
        takes = layer_moves.layers_to_take_over(have, going, wish, self._placed.layer_bytes)
        self._move(group, have, [held | takes[rank] for rank, held in enumerate(have)])

    def _must_save(self, newest: Generation | None, gone: Sequence[int], *, known: bool) -> bool:
        """Whoever leaves without having handed its layers on writes them down."""
        return self._formed is not None

    def leave(self, *, save: bool) -> None:
        """End this worker's part at a boundary. Raises Left."""
        if save:
            self._write(self._placed.held)
        super().leave(save=False)

    def _write(self, layers: layer_moves.Layers) -> None:
        state = self._placed
        self._parts.save_now(state.layer_step, state.boundary_common(), {i: state.layer(i) for i in layers})

    def _leave_in_time(self, leave_by: float) -> None:
        """In a thread of its own: if no boundary comes in time, write down what only this member has.

        Nothing of it changes between a boundary and the vote, before which the step waits for `changing`.
        """
        time.sleep(max(0.0, leave_by - _SAVING_S - time.monotonic()))
        group = self.group
        if group is None or not self._changing.acquire(timeout=max(0.0, leave_by - time.monotonic())):
            return
        held = layer_moves.layers_by_rank(self._plans.plan_for(group.world))
        others = frozenset().union(*(layers for rank, layers in enumerate(held) if rank != group.rank))
        only = self._placed.held - others
        if not only:
            self._changing.release()
            return
        self._write(only)
        self._link.send("left", step=self._placed.step)
        os._exit(0)
