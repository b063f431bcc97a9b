"""A pipeline's training script of which one member may go its own way; see `real_members`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from pipeline_job import plan
from real_members import Stage
from torch import nn
from torch.utils.data import TensorDataset

from offcut.pipeline.plan_set import PlanSet
from offcut.torch.pipeline.session import PipelineSession


def trains_stages(
    stage: Stage, plans: tuple[str, ...], what: str = "", rank: int = 1, step: int = 7, epochs: int = 3
) -> dict[str, Any]:
    """Member `rank` changes something of its own after `step` steps; `what` is empty: it does not."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(3)
    layers = [nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in pairwise([4, 6, 6, 6])]
    model = nn.Sequential(*layers, nn.BatchNorm1d(6), nn.Linear(6, 6), nn.Linear(6, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 40, 0.8)
    x = torch.randn(480, 4)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    with PipelineSession(
        model, optimizer, data, loss_fn=nn.functional.mse_loss, plans=PlanSet(tuple(plan(name) for name in plans))
    ) as session:
        session.register(schedule)
        for epoch in session.epochs(epochs):
            for _ in epoch:
                stage.at("step", session)
                session.step()
                schedule.step()
                if session.steps == step and session.rank == rank:
                    _diverge(what, model, optimizer, schedule)
    return {"steps": session.steps, "loss": session.loss}


def _diverge(what: str, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any) -> None:
    with torch.no_grad():
        match what:
            case "parameter":
                next(p for p in model[5].parameters() if p.numel())[0] *= 1 + 1e-12
            case "optimizer":
                optimizer.state[model[5].bias]["exp_avg"] += 1e-12
            case "buffer":
                model[3].running_mean += 1e-12
            case "setting":
                optimizer.param_groups[0]["lr"] = 0.02
            case "registered":
                schedule.last_epoch += 1
