"""What the ranks of the pipeline tests run: a plan beside a single process, on the same batch."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import torch
from pipeline_peers.plan_runner import PlanRunner
from torch import nn

from offcut.pipeline.plan import Plan, Stage
from offcut.pipeline.schedules import schedule_named

LAYERS, WIDTH = 8, 6


def make_plan(
    schedule: str,
    cuts: tuple[int, ...],
    replicas: tuple[int, ...],
    *,
    batch: int = 16,
    micro_batch: int = 2,
    overlap: bool = True,
) -> Plan:
    """A plan of those stages; times matter to 1f1b-link's depths alone, and there it takes them as equal."""
    place_of = schedule_named(schedule).place_of
    stages = tuple(
        Stage(
            first_layer=first, end_layer=end, place=place_of(s, len(replicas)),
            forward_s=1.0, backward_s=2.0, weight_grad_s=1.0,
            hop_s=1.0 if s < len(cuts) - 2 else 0.0, sync_s=0.0, parameter_bytes=0.0, state_bytes=0.0, stored_bytes=1.0,
        )
        for s, (first, end) in enumerate(pairwise(cuts))
    )  # fmt: skip
    return Plan(
        model="toy", devices=sum(replicas), batch=batch, micro_batch=micro_batch, schedule=schedule, replicas=replicas,
        stages=stages, overlap=overlap, step_s=1.0, bound_s=1.0, bubble_of_step=0.0, bubble_of_span=0.0,
        peak_bytes=(), peak_in_flight=(),
    )  # fmt: skip


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x))


def sequential() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(*(Block() for _ in range(LAYERS)))


class Skips(nn.Module):
    """Two skips that cross every cut in between, one of them through a transpose (a gradient not contiguous)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.steps = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.tanh(self.steps[0](x))
        early = second = torch.tanh(self.steps[1](first))
        for step in self.steps[2:6]:
            second = torch.tanh(step(second))
        mixed = torch.tanh(self.steps[6](second + first)) + early.t().contiguous().t()
        return self.steps[7](mixed.expand_as(mixed)).sum(1, keepdim=True).expand(-1, WIDTH)


def skips() -> nn.Module:
    return Skips()


class Breaks(nn.Module):
    """Fails on rank 1, in the forward of its third micro-batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == 3:
            raise RuntimeError("this layer breaks")
        return self.linear(x)


def mse(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(output, target)


def compare(rank: int, world: int, argument: dict[str, Any]) -> dict[str, Any]:
    """For every (model, plan, engine): the largest difference of a gradient and of the loss to a single process."""
    found = {}
    for name, (model, plan, engine) in argument.items():
        build = {"sequential": sequential, "skips": skips}[model]
        generator = torch.Generator().manual_seed(7)
        x = torch.randn(plan.batch, WIDTH, generator=generator)
        y = torch.randn(plan.batch, WIDTH, generator=generator)
        alone = build()
        loss = mse(alone(x), y)
        loss.backward()
        reference = {n: p.grad for n, p in alone.named_parameters()}
        runner = PlanRunner(build(), plan, mse, engine=engine, timeout_s=120.0)
        errors = []
        for _ in range(2):  # twice: the second step uses what the first one learned of shapes
            for p in runner.parameters():
                p.grad = None
            said = runner.step(x, y)
            errors.append(abs(said - float(loss.detach())))
            for n, p in runner.named_parameters().items():
                errors.append(float((p.grad - reference[n]).abs().max()))
        found[name] = (max(errors), len(runner.named_parameters()))
    return found


def breaks(rank: int, world: int, argument: Any) -> str:
    """One rank fails in the middle of a step and stays alive: its peers must not wait for it."""
    plan, engine = argument
    model = nn.Sequential(*(Block() for _ in range(LAYERS // 2)), Breaks(), *(Block() for _ in range(LAYERS // 2 - 1)))
    runner = PlanRunner(model, plan, mse, engine=engine, timeout_s=150.0)
    start = time.monotonic()
    try:
        runner.step(torch.randn(plan.batch, WIDTH), torch.randn(plan.batch, WIDTH))
    except Exception as error:
        return f"{time.monotonic() - start:.1f} {error}"
    return "no failure"


def wrong_batch(rank: int, world: int, plan: Plan) -> str:
    runner = PlanRunner(sequential(), plan, mse, timeout_s=120.0)
    try:
        runner.step(torch.randn(15, WIDTH), torch.randn(15, WIDTH))
    except Exception as error:
        return str(error)
    return "no failure"
