"""The program of the ranks of `benchmarks/pipeline.py`: plans whose layers sleep, over links with a declared delay, and
plans that compute."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from pipeline_peers.plan_runner import PlanRunner
from torch import nn

from offcut.pipeline.plan import Plan
from offcut.pipeline.program import F
from offcut.torch.pipeline.runtime.engine import PipelineEngine

WIDTH = 8


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, forward_s: float, backward_s: float) -> torch.Tensor:
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        time.sleep(ctx.backward_s)
        return gradient.clone(), None, None


class Sleeper(nn.Module):
    def __init__(self, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.forward_s, self.backward_s = forward_s, backward_s

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Sleep.apply(x * self.scale, self.forward_s, self.backward_s)


class DelayedEngine(PipelineEngine):
    """Our runtime over links that take `delay_s` per message, one message at a time per sender.

    All ranks are on one machine: the arrival times go through a shared file, and a receiver waits for them.
    """

    delay_s = 0.0
    board: np.ndarray

    def step(self, inputs: Any, targets: Any) -> float:
        self._free = 0.0
        return super().step(inputs, targets)

    def _send(self, op: Any, tensors: Any, here: Any, sends: Any) -> None:
        kind, stage, i = op
        to_stage = stage + 1 if kind == F else stage - 1
        if self.delay_s and self._owner[to_stage, i] != self._rank:
            self._free = max(self._free, time.monotonic()) + self.delay_s
            self.board[kind, to_stage, i] = self._free
        super()._send(op, tensors, here, sends)

    def _receive(self, kind: int, stage: int, i: int, here: Any) -> Any:
        got = super()._receive(kind, stage, i, here)
        if self.delay_s and self._needs((kind, stage, i)):
            time.sleep(max(0.0, float(self.board[kind, stage, i]) - time.monotonic()))
        return got


def mse(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(output, target)


def sleeping(rank: int, world: int, argument: dict[str, Any]) -> list[float]:
    """Shortest of `repeats` steps of every (plan, layer times, delay, engine), in seconds; the same on every rank."""
    found = []
    board = np.memmap(argument["board"], dtype=np.float64, mode="r+", shape=(2, 16, 64))
    for plan, layers, delay_s, engine in argument["cases"]:
        DelayedEngine.delay_s, DelayedEngine.board = delay_s, board
        model = nn.Sequential(*(Sleeper(f, b) for f, b in layers))
        found.append(_shortest(_runner(model, plan, engine), plan, argument["repeats"], WIDTH))
    return found


def _runner(model: nn.Module, plan: Plan, engine: str) -> PlanRunner:
    return PlanRunner(model, plan, mse, engine=engine, timeout_s=30.0, own_engine=DelayedEngine)


def _shortest(runner: PlanRunner, plan: Plan, repeats: int, width: int) -> float:
    x, y = torch.randn(plan.batch, width), torch.randn(plan.batch, width)
    shortest = float("inf")
    for _ in range(repeats + 1):
        torch.distributed.barrier()
        start = time.monotonic()
        runner.step(x, y)
        lasted = torch.tensor([time.monotonic() - start])
        torch.distributed.all_reduce(lasted, op=torch.distributed.ReduceOp.MAX)
        shortest = min(shortest, float(lasted))
    return shortest


def calibrate(rank: int, world: int, argument: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Measure how long declared sleeps take through autograd on this machine: medians of (forward, backward)."""
    found = []
    for forward_s, backward_s in argument:
        layer = Sleeper(forward_s, backward_s)
        forwards, backwards = [], []
        for _ in range(9):
            x = torch.randn(2, WIDTH, requires_grad=True)
            start = time.monotonic()
            out = layer(x)
            middle = time.monotonic()
            out.sum().backward()
            forwards.append(middle - start)
            backwards.append(time.monotonic() - middle)
        found.append((float(np.median(forwards)), float(np.median(backwards))))
    return found


def network(width: int, layers: int) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(layers)))


def computing(rank: int, world: int, argument: dict[str, Any]) -> list[Any]:
    """For every (plan, width, layers): (this rank's stage's forward and backward, the step), all of them means.

    Steps and measurements of the stage alternate, and the peer computes during both: on a machine with other users the
    two see the same load."""
    found = []
    for plan, width, layers, engine in argument["cases"]:
        runner = PlanRunner(network(width, layers), plan, mse, engine=engine, timeout_s=30.0)
        stage = runner.modules[rank]
        x = torch.randn(plan.micro_batch, width)
        batch, target = torch.randn(plan.batch, width), torch.randn(plan.batch, width)
        measured, steps = [], []
        runner.step(batch, target)
        for _ in range(argument["repeats"]):
            torch.distributed.barrier()
            for _ in range(plan.micro_batches):
                given = x.clone().requires_grad_(rank > 0)
                start = time.monotonic()
                out = stage(given)
                middle = time.monotonic()
                out.sum().backward()
                measured.append((middle - start, time.monotonic() - middle))
            torch.distributed.barrier()
            start = time.monotonic()
            runner.step(batch, target)
            steps.append(time.monotonic() - start)
        mean = [float(np.mean([m[k] for m in measured])) for k in (0, 1)]
        found.append((mean, float(np.mean(steps))))
    return found
