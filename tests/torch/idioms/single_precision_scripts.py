"""A training in single precision, as people train; see `real_members` for how it runs."""

from __future__ import annotations

from typing import Any

import torch
from elastic_scripts import member
from real_members import Stage
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import offcut.torch

BATCH = 64


class Losses:
    """The losses of all steps that were applied, to be registered."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def state_dict(self) -> dict[str, list[float]]:
        return {"values": list(self.values)}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        self.values = list(state["values"])


def digits(stage: Stage, *, steps: int = 60) -> dict[str, Any]:
    """A convolutional network on the digits of scikit-learn; the result has the loss of every step."""
    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    images = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    model: Any = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10)
    )
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    loader: Any = DataLoader(TensorDataset(images, torch.tensor(y)), BATCH, shuffle=True, drop_last=True)
    losses = Losses()
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, state=[scheduler, losses])
    while offcut.torch.steps() < steps:
        for inputs, labels in loader:
            stage.at("step", member())
            loss = nn.functional.cross_entropy(model(inputs), labels)
            offcut.torch.report_loss(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.values.append(offcut.torch.last_loss())
    return {"losses": losses.values, "all_applied": len(losses.values) == offcut.torch.steps()}
