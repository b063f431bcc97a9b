"""The step under way in a pipeline job: forward and backward over all stages, the vote, the update.

A member's gradients are final before it enters the vote, so once the vote has ended anywhere, every member is able to
apply the step. Where the vote broke for some, they keep their gradients until the next generation says whether anybody
applied it: if one did, all do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from offcut.errors import InputError
from offcut.pipeline.layer_moves import layers_by_first_holder, layers_by_rank
from offcut.pipeline.plan import Plan
from offcut.pipeline.program import F
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.pipeline.layer_state import LayerState
from offcut.torch.pipeline.runtime.engine import LossFn, PipelineEngine
from offcut.torch.pipeline.runtime.transport import GenerationTransport
from offcut.torch.step.batch import Batch, Fetcher, seed_everything
from offcut.torch.step.gradient_reduce import MemberFlags, StepOutcome, StepSignals
from offcut.torch.step.sampler import Sampler


class PipelineStep:
    """See `Step`.

    `visit` is called at the points where tests let something fail; if it returns True, the generation broke.
    """

    #: A step has one part: the whole of it.
    more_parts = False
    #: A member for which the vote has ended applies the step, whether it has ended for this one or not.
    commits_in_reduce = True

    def __init__(
        self,
        state: LayerState,
        *,
        sampler: Sampler,
        fetcher: Fetcher,
        loss_fn: LossFn,
        seed: int,
        clip_norm: float | None,
        device: torch.device,
        visit: Callable[[str], bool],
    ) -> None:
        self._state = state
        self._sampler = sampler
        self._fetcher = fetcher
        self._loss_fn = loss_fn
        self._seed = seed
        self._clip_norm = clip_norm
        self._device = device
        self._visit = visit
        self.batch = torch.empty(0, dtype=torch.int64)
        #: The batch has been given to the script's loop and had no step() yet.
        self._waits_for_step = False
        #: The gradients of step `state.step + 1` are final and not applied.
        self.prepared = False
        #: The buffers that such a step has made.
        self._made: list[torch.Tensor] = []
        self._loss = 0.0
        self._plan: Plan | None = None
        self._engine: PipelineEngine | None = None
        self._replica_groups: dict[int, Group] = {}
        #: Layers that this member is the first to hold: it counts and saves them.
        self.owned: frozenset[int] = frozenset()
        self._inputs: list[int] = []
        self._targets: list[int] = []

    # -- where what is computed ---------------------------------------------------------------------------------------

    def place(self, group: Group, plan: Plan) -> None:
        """Compute this member's stages of `plan` from now on; it holds their layers already. Raises Abandoned."""
        program = plan.program()
        holders = program.holders()
        mine = [stage for stage, ranks in enumerate(holders) if group.rank in ranks]
        chain = self._state.chain
        modules = {s: chain.stage(plan.stages[s].first_layer, plan.stages[s].end_layer) for s in mine}
        self._engine = PipelineEngine(
            program,
            modules,
            self._loss_fn,
            rank=group.rank,
            device=self._device,
            transport=GenerationTransport(group),
            before=lambda stage, i: self._seed_for(plan.stages[stage].first_layer, i),
        )
        self._replica_groups = {s: group.among(holders[s], f"stage-{s}") for s in mine if len(holders[s]) > 1}
        lanes = [lane for lane, rank in enumerate(program.rank_of_lane.tolist()) if rank == group.rank]
        computes = {(stage, i) for lane in lanes for kind, stage, i in program.lane(lane) if kind == F}
        self._inputs = sorted(i for stage, i in computes if stage == 0)
        self._targets = sorted(i for stage, i in computes if stage == program.stages - 1)
        self.owned = layers_by_first_holder(layers_by_rank(plan))[group.rank]
        self._plan, self.prepared = plan, False

    def _seed_for(self, first_layer: int, i: int) -> None:
        seed_everything(self._seed, self._state.step, (first_layer * 1009 + i) % 65_537, self._device)

    def _span(self, stage: int) -> range:
        assert self._plan is not None
        return range(self._plan.stages[stage].first_layer, self._plan.stages[stage].end_layer)

    # -- one step -----------------------------------------------------------------------------------------------------

    def begin(self, group: Group) -> torch.Tensor:
        """See `Step`; returned are the samples whose loss this member computes."""
        state = self._state
        assert self._plan is not None
        self.batch = self._sampler.batch(state.cursor, self._plan.batch)
        self.prepared = False
        self._waits_for_step = True
        for p in state.parameters(state.held):
            p.grad = None
        pieces = self.batch.tensor_split(self._plan.micro_batches)
        return torch.cat([self.batch[:0], *(pieces[i] for i in self._targets)])

    def next_part(self, group: Group) -> Batch:
        """Return the positions of the whole global batch: which part of it a member computes is up to the plan."""
        return Batch(None, self.batch)

    def drop(self) -> None:
        """Do nothing: a step has one part."""

    def check_batch(self) -> None:
        """InputError if the batch has had its step() already."""
        if not self._waits_for_step:
            raise InputError(
                "PipelineSession: step() without a batch.", next_step="Call it once for each turn of the inner loop."
            )
        self._waits_for_step = False

    def compute(self, group: Group) -> None:
        """Forward and backward, gradients summed over each stage's replicas. Raises Abandoned."""
        plan, engine, state = self._plan, self._engine, self._state
        assert plan is not None
        assert engine is not None
        # Micro-batches of the last batch of a data epoch may be smaller, or without samples: those count nothing.
        pieces = self.batch.tensor_split(plan.micro_batches)
        shares = [len(piece) / len(self.batch) for piece in pieces]
        pieces = tuple(piece if len(piece) else self.batch[:1] for piece in pieces)
        wanted = sorted({*self._inputs, *self._targets})
        fetched = {i: self._fetcher.fetch(pieces[i], state.step, i) for i in wanted}
        self._visit("loaded")
        loss = engine.step(
            {i: fetched[i][0] for i in self._inputs},
            {i: fetched[i][1] for i in self._targets},
            rows=[len(piece) for piece in pieces],
            shares=shares,
        )
        self._loss = loss / plan.micro_batches
        for p in state.parameters(state.held):
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        under_way = []
        for stage, replicas in self._replica_groups.items():
            under_way.append((replicas, stage, *self._start_replica_sum(replicas, stage)))
        for replicas, stage, flat, pending in under_way:
            replicas.wait(pending)
            self._finish_replica_sum(stage, flat, replicas.world)
        self.prepared = True

    def _start_replica_sum(self, replicas: Group, stage: int) -> tuple[torch.Tensor, Any]:
        """Start summing a stage's gradients and the changes of its buffers over its replicas, in one message."""
        state, layers = self._state, self._span(stage)
        gradients = [p.grad.reshape(-1).cpu() for p in state.parameters(layers) if p.grad is not None]
        changes = [(new - old).reshape(-1).cpu() for new, old in self._buffer_pairs(layers)]
        summed = [*gradients, *changes]
        dtype = torch.float64 if any(x.dtype == torch.float64 for x in summed) else torch.float32
        flat = torch.cat([x.to(dtype) for x in summed]) if summed else torch.zeros(1)
        return flat, replicas.start_all_reduce(flat)

    def _finish_replica_sum(self, stage: int, flat: torch.Tensor, replicas: int) -> None:
        """Copy the sum back: of gradients the sum over the replicas counts, of the buffers' changes the mean."""
        layers, at = self._span(stage), 0
        for p in self._state.parameters(layers):
            assert p.grad is not None
            p.grad.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()
        with torch.no_grad():
            for new, old in self._buffer_pairs(layers):
                new.copy_(old + (flat[at : at + new.numel()] / replicas).view_as(new).to(new.device))
                at += new.numel()

    def _buffer_pairs(self, layers: range) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return each real-valued buffer of those layers, with its copy of the last boundary."""
        kept = {id(b): self._state.buffers.kept[name] for name, b in self._state.model.named_buffers()}
        return [(b, kept[id(b)]) for b in self._state.buffers_in(layers)]

    def reduce(self, group: Group, flags: MemberFlags) -> StepOutcome:
        """Vote: it ends when all members have the step's gradients. Raises Abandoned.

        Args:
            group: the members; all call this at once.
            flags: what this member tells the others.

        Returns:
            What every member knows now; its `changes` is the square of the gradient's norm, float64 [1].
        """
        mine = sum(float(p.grad.double().square().sum()) for p in self._state.parameters(self.owned))
        if self._visit("before-reduce"):
            raise Abandoned("injected before the vote")
        signals = StepSignals(
            group,
            loss=self._loss,
            switch=flags.switch,
            save=flags.save,
            leaving=flags.leaving,
            changes=torch.tensor([mine], dtype=torch.float64),
        )
        pending = signals.start(group)
        if self._visit("inside-reduce"):
            raise Abandoned("injected inside the vote")
        group.wait(pending)
        if self._visit("after-reduce"):
            raise Abandoned("injected after the vote")
        return signals.outcome()

    def apply(self, group: Group, outcome: StepOutcome) -> None:
        """See `Step`."""
        state = self._state
        assert self._plan is not None
        state.update(self._clip_norm, float(outcome.changes[0]))
        state.drop_copies()
        self.prepared = False
        state.step += 1
        state.loss = outcome.loss
        state.layer_step = state.step
        state.samples += len(self.batch)
        state.cursor = self._sampler.after(state.cursor, self._plan.batch)

    def fail(self) -> None:
        """Note that the step broke here; it may have been applied on other members."""
        self._state.copy_script_state()
        self._made = [b.clone() for b in self._state.buffers_in(self._state.held)] if self.prepared else []

    def apply_late(self, norm_squared: float) -> None:
        """Apply the step whose vote broke here to the layers that are held, because another member has applied it."""
        state = self._state
        with torch.no_grad():
            for buffer, made in zip(state.buffers_in(state.held), self._made, strict=True):
                buffer.copy_(made)
        state.buffers.copy_boundary()
        state.update(self._clip_norm, norm_squared)
        state.layer_step += 1
        self.prepared = False

    def settle(self, *, applied: bool) -> None:
        """See `Step`."""
        self._state.restore()
        if applied:
            self._state.buffers.copy_boundary()
