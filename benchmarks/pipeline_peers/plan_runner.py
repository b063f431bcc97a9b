"""One step of a plan, on any rank: forward, backward, gradients summed over the replicas of each stage.

After `step` the gradients of the stages that this rank holds are those of the mean loss over the whole batch, exactly
as a single process would have them; the optimizer's step is the caller's.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from offcut.errors import InputError
from offcut.pipeline.plan import Plan
from offcut.torch.pipeline.layer_chain import LayerChain, layer_chain
from offcut.torch.pipeline.runtime.engine import PipelineEngine
from pipeline_peers.default_group_transport import DefaultGroupTransport
from pipeline_peers.torch_schedules import LossFn, NativeEngine, can_run, new_group


class PlanRunner:
    """Runs `plan` in the default process group, whose ranks are the plan's devices in order.

    Args:
        model: what is trained; every rank has all of it.
        plan: stages, replicas and schedule.
        loss_fn: the mean loss over a micro-batch, from its output and target.
        engine: `native` (torch.distributed.pipelining), `own` (that of jobs), or `auto`: native where it can.
        device: where this rank computes; None is the CPU.
        timeout_s: a failure on any rank reaches the others within this.
        own_engine: the engine that `own` means; a benchmark may give a subclass.

    Raises:
        InputError: the plan does not suit the model or the group.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        loss_fn: LossFn,
        *,
        engine: str = "auto",
        device: torch.device | None = None,
        timeout_s: float = 60.0,
        own_engine: type[PipelineEngine] = PipelineEngine,
    ) -> None:
        self.plan = plan
        self.rank = dist.get_rank()
        self.device = device or torch.device("cpu")
        self.chain: LayerChain = layer_chain(model)
        _check(plan, self.chain)
        program = plan.program()
        holders = program.holders()
        self.stages = [stage for stage, ranks in enumerate(holders) if self.rank in ranks]
        self.modules = {
            stage: self.chain.stage(plan.stages[stage].first_layer, plan.stages[stage].end_layer).to(self.device)
            for stage in self.stages
        }
        # Every rank makes every group, in one order: that is what new_group asks for.
        self._replica_groups = {
            stage: new_group(ranks, timeout_s) for stage, ranks in enumerate(holders) if len(ranks) > 1
        }
        refusal = can_run(plan)
        if engine == "native" and refusal:
            raise InputError(f"torch.distributed.pipelining cannot run {plan.label}: {refusal}.", next_step="Use own.")
        native = engine == "native" or (engine == "auto" and not refusal)
        self._native: NativeEngine | None = None
        self._own: PipelineEngine | None = None
        if native:
            replicas = plan.replicas[0]
            pipelines = [
                new_group([place * replicas + copy for place in range(len(plan.replicas))], timeout_s)
                for copy in range(replicas)
            ]
            copy = self.rank % replicas
            self._native = NativeEngine(
                plan, self.modules, loss_fn, copy=copy, group=pipelines[copy], device=self.device
            )
            self.micro_batches = self._native.micro_batches
        else:
            transport = DefaultGroupTransport(timeout_s)
            self._own = own_engine(
                program, self.modules, loss_fn, rank=self.rank, device=self.device, transport=transport
            )
            self.micro_batches = self._own.micro_batches

    def parameters(self) -> list[nn.Parameter]:
        """Of the stages that this rank holds: what its optimizer is for."""
        return [parameter for module in self.modules.values() for parameter in module.parameters()]

    def named_parameters(self) -> dict[str, nn.Parameter]:
        """The same by the model's own names."""
        spans = [(self.plan.stages[s].first_layer, self.plan.stages[s].end_layer) for s in self.stages]
        return {name: p for first, end in spans for name, p in self.chain.parameters_of(first, end).items()}

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        """Forward and backward of one global batch (the same tensors on every rank); returns its mean loss everywhere.

        Gradients are added to what is there: zero them before. Raises InputError where the batch is not the plan's;
        every rank raises then, before anything is sent.
        """
        if len(inputs) != self.plan.batch or len(targets) != self.plan.batch:
            raise InputError(
                f"the batch has {len(inputs)} samples and {len(targets)} targets, the plan {self.plan.batch}.",
                next_step="Drop or fill up the last batch, or plan for its size.",
            )
        try:
            return self._step(inputs.split(self.plan.micro_batch), targets.split(self.plan.micro_batch))
        except BaseException:
            # The peers wait for messages that will not come. Closing the connections tells them at once.
            abandon()
            raise

    def _step(self, inputs: tuple[torch.Tensor, ...], targets: tuple[torch.Tensor, ...]) -> float:
        m = self.plan.micro_batches
        before = {p: p.grad for p in self.parameters()}
        for p in before:
            p.grad = None
        if self._native is not None:
            mine = self._native.micro_batches
            loss = self._native.step([inputs[i] for i in mine], [targets[i] for i in mine]) * len(mine)
            # The engine made the mean over its own copy's micro-batches; the plan's is over all of them.
            for p in before:
                if p.grad is not None:
                    p.grad.mul_(len(mine) / m)
        else:
            assert self._own is not None
            mine = self._own.micro_batches
            loss = self._own.step({i: inputs[i] for i in mine}, {i: targets[i] for i in mine})
        for stage in self.stages:
            if stage in self._replica_groups:
                _sum_gradients(list(self.modules[stage].parameters()), self._replica_groups[stage])
        for p, old in before.items():
            if old is not None:
                p.grad = old if p.grad is None else p.grad.add_(old)
        total = torch.tensor([loss], dtype=torch.float64)
        dist.all_reduce(total)
        return float(total) / m


def abandon() -> None:
    """Walk away from the default group: its connections close, and every peer that waits fails now, not in an hour."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _sum_gradients(parameters: list[nn.Parameter], group: dist.ProcessGroup) -> None:
    """One message for all gradients of a stage. A parameter without a gradient counts as zero."""
    wanted = [p for p in parameters if p.requires_grad]
    for p in wanted:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    if not wanted:
        return
    flat = torch.cat([p.grad.reshape(-1) for p in wanted if p.grad is not None])
    dist.all_reduce(flat, group=group)
    at = 0
    for p in wanted:
        assert p.grad is not None
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def _check(plan: Plan, chain: LayerChain) -> None:
    world = dist.get_world_size()
    if world != sum(plan.replicas):
        raise InputError(
            f"the plan is for {sum(plan.replicas)} devices, the process group has {world} ranks.",
            next_step="Start as many processes as the plan has devices.",
        )
    if plan.cuts[-1] != len(chain):
        raise InputError(
            f"the plan covers {plan.cuts[-1]} layers, the model has {len(chain)}.",
            next_step="Plan again from a profile of this model.",
        )
