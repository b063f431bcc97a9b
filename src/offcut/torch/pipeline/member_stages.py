"""The stages of the plan that one member computes: their modules, the engine that runs them, their replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from offcut.pipeline.layer_moves import layers_by_first_holder, layers_by_rank
from offcut.pipeline.plan import Plan
from offcut.pipeline.program import F
from offcut.torch.membership.process_group import Group
from offcut.torch.pipeline.layer_state import LayerState
from offcut.torch.pipeline.runtime.engine import LossFn, PipelineEngine
from offcut.torch.pipeline.runtime.transport import GenerationTransport
from offcut.torch.step.batch import seed_everything


class MemberStages:
    """Runs this member's stages; `place` must be called when a generation has formed, before anything else.

    Args:
        state: the layers that this member holds.
        loss_fn: called with the model's output and the targets of a micro-batch; returns its mean loss.
        seed: of the random numbers of each layer's forward.
        device: where the stages are computed.
    """

    def __init__(self, state: LayerState, loss_fn: LossFn, seed: int, device: torch.device) -> None:
        self._state = state
        self._loss_fn = loss_fn
        self._seed = seed
        self._device = device
        self._plan: Plan | None = None
        self._engine: PipelineEngine | None = None
        self._replica_groups: dict[int, Group] = {}
        #: Layers that this member is the first to hold: it counts and saves them.
        self.owned: frozenset[int] = frozenset()
        #: Micro-batches whose inputs, and whose targets, this member needs.
        self.input_batches: list[int] = []
        self.target_batches: list[int] = []

    @property
    def plan(self) -> Plan:
        """The plan that this member follows."""
        assert self._plan is not None
        return self._plan

    def place(self, group: Group, plan: Plan) -> None:
        """Make this member's stages of a plan from the layers that it holds, and groups of each stage's replicas.

        Args:
            group: the members; all call this at once.
            plan: a plan for as many members.

        Raises:
            Abandoned: a member was lost.
        """
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
        self.input_batches = sorted(i for stage, i in computes if stage == 0)
        self.target_batches = sorted(i for stage, i in computes if stage == program.stages - 1)
        self.owned = layers_by_first_holder(layers_by_rank(plan))[group.rank]
        self._plan = plan

    def _seed_for(self, first_layer: int, i: int) -> None:
        seed_everything(self._seed, self._state.step, (first_layer * 1009 + i) % 65_537, self._device)

    def _span(self, stage: int) -> range:
        return range(self.plan.stages[stage].first_layer, self.plan.stages[stage].end_layer)

    def run(
        self,
        inputs: dict[int, torch.Tensor],
        targets: dict[int, torch.Tensor],
        rows: Sequence[int],
        shares: Sequence[float],
    ) -> float:
        """Run forward and backward of all micro-batches through this member's stages; gradients are added to `.grad`.

        Args:
            inputs: the inputs of micro-batches `input_batches`.
            targets: the targets of micro-batches `target_batches`.
            rows: the number of samples in each micro-batch of the plan.
            shares: the part of the global batch's samples that each micro-batch has.

        Returns:
            The sum of the losses of the micro-batches whose targets this member has, each by its share, times the
            number of all micro-batches.

        Raises:
            Abandoned: a member was lost.
        """
        assert self._engine is not None
        return self._engine.step(inputs, targets, rows=rows, shares=shares)

    def sum_over_replicas(self) -> None:
        """Replace gradients by their sum over each stage's replicas, buffers by their mean. Raises Abandoned."""
        under_way = []
        for stage, replicas in self._replica_groups.items():
            under_way.append((replicas, stage, *self._start_replica_sum(replicas, stage)))
        for replicas, stage, flat, pending in under_way:
            replicas.wait(pending)
            self._finish_replica_sum(stage, flat, replicas.world)

    def _start_replica_sum(self, replicas: Group, stage: int) -> tuple[torch.Tensor, Any]:
        """Start summing a stage's gradients and the changes of its buffers over its replicas, in one message."""
        state, layers = self._state, self._span(stage)
        gradients = [p.grad.reshape(-1).cpu() for p in state.parameters(layers) if p.grad is not None]
        changes = [(new - old).reshape(-1).cpu() for new, old in self._buffer_pairs(layers)]
        summed = [*gradients, *changes]
        dtype = torch.float64 if any(x.dtype == torch.float64 for x in summed) else torch.float32
        flat = torch.cat([x.to(dtype) for x in summed]) if summed else torch.zeros(1, device="cpu")
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
