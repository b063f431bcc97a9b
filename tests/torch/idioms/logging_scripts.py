"""Training scripts that log; see `real_members` for how they run."""

from __future__ import annotations

from typing import Any

import torch
from elastic_scripts import member, squared
from idiom_scripts import BATCH, data, network
from real_members import Stage
from torch.utils.data import DataLoader

import offcut.torch


def logs(stage: Stage, *, shards: int | None = None, accumulate: int = 1, every: int = 1) -> list[dict[str, float]]:
    """Logs the loss and the largest output; returns what is to be logged of each step that has counted."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader: Any = DataLoader(data(37), BATCH, shuffle=True)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, virtual_shards=shards)
    told, values = [], []
    for _ in offcut.torch.epochs(5):
        for batch in loader:
            stage.at("step", member())
            loss = 0.0
            for x, y in batch if shards else [batch]:
                own = squared(model, x, y).mean()
                if offcut.torch.steps() % every == 0:
                    offcut.torch.log(loss=own, size=x.abs().mean().item())
                (own / accumulate).backward()
                loss += own.item() * len(x)
            values.append(loss / sum(len(x) for x, _ in batch) if shards else loss / len(batch[0]))
            if loader.completes(accumulate):
                optimizer.step()
                optimizer.zero_grad()
                told.append(sum(values) / len(values))
                values = []
    return told


def logs_different_names(stage: Stage) -> None:
    """One member logs a name that the others do not."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, DataLoader(data(), BATCH))
    for _ in offcut.torch.epochs(1):
        for x, y in loader:
            loss = squared(model, x, y).mean()
            if stage.name.startswith("n1#"):
                offcut.torch.log(other=1.0)
            offcut.torch.log(loss=loss)
            loss.backward()
            optimizer.step()
