"""Training scripts about what optimizers get and keep, each beside the same in plain torch; see `real_members`."""

from __future__ import annotations

from typing import Any

import torch
from idiom_scripts import BATCH, SAMPLES, data, network, numbers
from real_members import Stage
from torch import nn

from offcut.torch import Session


class Branches(nn.Module):
    """One layer is always used, one only for the first sample of the data, and one never."""

    def __init__(self) -> None:
        super().__init__()
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(3)
        self.always, self.rarely, self.never = nn.Linear(4, 1), nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.always(x)
        chosen = (indices == 0).unsqueeze(1)
        return y + torch.where(chosen, self.rarely(x), 0.0) if chosen.any() else y


def uses_branches(stage: Stage) -> dict[str, Any]:
    """Parameters that have a gradient on one member only, or on none; AdamW moves those whose gradient is zero."""
    model = Branches()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    with Session(model, optimizer, data(), global_batch=BATCH, virtual_shards=2) as session:
        for epoch in session.epochs(3):
            for batch in epoch:
                stage.at("step", session)
                session.step((model(batch.x, batch.indices) - batch.y).square().mean())
    return {"parameters": numbers(model), "kept": len(optimizer.state)}


def uses_branches_in_plain_torch(stage: Stage) -> dict[str, Any]:
    """The same written out."""
    model = Branches()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    x, y = data().tensors
    for epoch in range(3):
        for indices in torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch)).split(BATCH):
            optimizer.zero_grad()
            for shard in indices.split(BATCH // 2):
                ((model(x[shard], shard) - y[shard]).square().mean() / 2).backward()
            optimizer.step()
    return {"parameters": numbers(model), "kept": len(optimizer.state)}


class Momentum32(torch.optim.Optimizer):
    """Keeps a momentum in float32 whatever the type of the parameters."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for settings in self.param_groups:
            for p in settings["params"]:
                kept = self.state[p]
                if "momentum" not in kept:
                    kept["momentum"] = torch.zeros_like(p, dtype=torch.float32)
                kept["momentum"].mul_(0.9).add_(p.grad.float())
                p.add_(kept["momentum"].to(p.dtype), alpha=-settings["lr"])


def keeps_more_precise_numbers(stage: Stage) -> dict[str, Any]:
    """Parameters in bfloat16 whose optimizer keeps float32."""
    model = network().bfloat16()
    optimizer = Momentum32(model.parameters())
    with Session(model, optimizer, data(), global_batch=BATCH) as session:
        for epoch in session.epochs(4):
            for batch in epoch:
                stage.at("step", session)
                session.step((model(batch.x.bfloat16()) - batch.y).square().mean())
    kept = [optimizer.state[p]["momentum"] for p in model.parameters()]
    return {
        "parameters": numbers(model),
        "momentum": torch.cat([item.reshape(-1) for item in kept]).tolist(),
        "types": [str(item.dtype) for item in kept],
    }


def updates_a_group_with_frozen_parameters(stage: Stage) -> dict[str, Any]:
    """`update()` for an optimizer of which some parameters are frozen."""
    first, second = network(), network()
    for p in first[0].parameters():
        p.requires_grad_(False)
    both = nn.ModuleList([first, second])
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.05) for part in both]
    with Session(both, optimizers, data(), global_batch=BATCH) as session:
        for epoch in session.epochs(2):
            for batch in epoch:
                session.update((first(batch.x) - batch.y).square().mean(), optimizers[0])
                session.step((second(batch.x) - first(batch.x).detach()).square().mean())
    return {"parameters": numbers(both)}


def updates_a_group_with_frozen_parameters_in_plain_torch(stage: Stage) -> dict[str, Any]:
    """The same written out."""
    first, second = network(), network()
    for p in first[0].parameters():
        p.requires_grad_(False)
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.05) for part in (first, second)]
    x, y = data().tensors
    for epoch in range(2):
        for indices in torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch)).split(BATCH):
            for optimizer in optimizers:
                optimizer.zero_grad()
            (first(x[indices]) - y[indices]).square().mean().backward()
            optimizers[0].step()
            (second(x[indices]) - first(x[indices]).detach()).square().mean().backward()
            optimizers[1].step()
    return {"parameters": numbers(nn.ModuleList([first, second]))}
