"""Programs on `torch.distributed.pipelining`.

Our program becomes the runtime's schedule as it is, operation by operation; the runtime adds the transfers, which
overlap computing. A plan whose devices cannot overlap the two runs on `Schedule1F1B`, which meets for every transfer.
The runtime that takes a program is private to PyTorch (`_PipelineScheduleRuntime`): the version is pinned and tested.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining.schedules import _Action, _PipelineScheduleRuntime

from offcut.pipeline.plan import Plan
from offcut.pipeline.program import Program
from offcut.torch.pipeline.runtime.stage_edges import ContiguousEdges

LossFn = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def can_run(plan: Plan) -> str:
    """Why `torch.distributed.pipelining` cannot run this plan; the empty string: it can."""
    if len(set(plan.replicas)) > 1:
        return "a stage lives on one rank of a pipeline there, so replicas must be even"
    if len(plan.replicas) == 1:
        return "data parallelism has no pipeline"
    if plan.schedule == "chimera":
        return "a stage lives on one rank there, and Chimera's live on two"
    if plan.schedule.startswith(("fbp-as-static", "pipedream")):
        return "its operations on one rank are not one sequence with a flush"
    return ""


class NativeEngine:
    """One copy of the pipeline, on the ranks of `group`; copy k has micro-batches k, k + r, ... of the plan."""

    def __init__(
        self,
        plan: Plan,
        modules: dict[int, nn.Module],
        loss_fn: LossFn,
        *,
        copy: int,
        group: dist.ProcessGroup,
        device: torch.device,
    ) -> None:
        replicas = plan.replicas[0]
        self.micro_batches = list(range(copy, plan.micro_batches, replicas))
        self._first = 0 in modules
        self._last = len(plan.stages) - 1 in modules
        stages = [
            PipelineStage(ContiguousEdges(module), index, len(plan.stages), device, group=group)
            for index, module in sorted(modules.items())
        ]
        count = len(self.micro_batches)
        if plan.overlap:
            self._schedule = _PipelineScheduleRuntime(stages, count, loss_fn=loss_fn)
            self._schedule._prepare_schedule_with_comms(_actions(plan.program(), plan.replicas, copy))
        elif plan.schedule == "gpipe":
            self._schedule = ScheduleGPipe(stages[0], count, loss_fn=loss_fn)
        else:
            self._schedule = Schedule1F1B(stages[0], count, loss_fn=loss_fn)

    def step(self, inputs: list[torch.Tensor], targets: list[torch.Tensor]) -> float:
        """All micro-batches of this copy; returns the mean loss over them (0 where the last stage is elsewhere).

        Gradients are left in the parameters, as of the mean over this copy's micro-batches.
        """
        losses: list[torch.Tensor] = []
        given = (torch.cat(inputs),) if self._first else ()
        if self._last:
            self._schedule.step(*given, target=torch.cat(targets), losses=losses, return_outputs=False)
            return float(torch.stack([loss.detach() for loss in losses]).mean())
        self._schedule.step(*given, return_outputs=False)
        return 0.0


def _actions(program: Program, replicas: tuple[int, ...], copy: int) -> dict[int, list[_Action | None]]:
    """The program of one copy in PyTorch's own terms, its micro-batches counted from 0."""
    r = replicas[0]
    made: dict[int, list[_Action | None]] = {}
    for place in range(len(replicas)):
        lane = place * r + copy
        made[place] = [_Action.from_str(f"{stage}{'FBIW'[kind]}{i // r}") for kind, stage, i in program.lane(lane)]
    return made


def new_group(ranks: list[int], timeout_s: float) -> dist.ProcessGroup:
    """A group whose operations fail after `timeout_s`; every rank must call this, in the same order."""
    return dist.new_group(ranks, timeout=timedelta(seconds=timeout_s))
