"""Training scripts whose batches a function draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from idiom_scripts import BATCH, data, network, numbers
from real_members import Stage
from torch.utils.data import DataLoader

import offcut.torch
from offcut.torch.elastic_parts import current_training


def member() -> Any:
    """What `Stage.at` asks for the steps and the connection."""
    return current_training.current("at").training


def get_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return samples of two kinds, drawn by two generators."""
    x = torch.randn(BATCH, 4, dtype=torch.float64) + torch.from_numpy(np.random.rand(BATCH, 1))
    return x, x.sum(1, keepdim=True).sin()


def over_steps(stage: Stage, *, steps: int = 115) -> dict[str, Any]:
    """Counts steps, each of which has two batches."""
    np.random.seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer, draw = offcut.torch.elastic(model, optimizer, get_batch)
    for _ in offcut.torch.steps(steps):
        stage.at("step", member())
        for _ in range(2):
            x, y = draw()
            ((model(x) - y).square().mean() / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"parameters": numbers(model), "steps": offcut.torch.steps(), "drawn": torch.rand(1).item()}


def over_epochs(stage: Stage) -> dict[str, Any]:
    """Draws four batches in each epoch."""
    np.random.seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, draw = offcut.torch.elastic(model, optimizer, get_batch)
    seen = []
    for epoch in offcut.torch.epochs(3):
        seen.append(epoch)
        while offcut.torch.steps() < 4 * (epoch + 1):
            x, y = draw()
            stage.at("step", member())
            (model(x) - y).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return {"parameters": numbers(model), "steps": offcut.torch.steps(), "last": seen[-1]}


def with_noise(stage: Stage, *, epochs: int = 3) -> dict[str, Any]:
    """Adds noise to the samples of a loader, and draws which of them count."""
    np.random.seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader: Any = DataLoader(data(37), BATCH, shuffle=True)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader)
    for _ in offcut.torch.epochs(epochs):
        for x, y in loader:
            stage.at("step", member())
            noise, (counts, _) = (
                offcut.torch.draw_rows(lambda rows: torch.randn(rows, 4, dtype=torch.float64)),
                offcut.torch.draw_rows(lambda rows: (torch.from_numpy(np.random.rand(rows, 1)), torch.rand(rows))),
            )
            optimizer.zero_grad()
            ((model(x + 0.1 * noise) - y).square() * counts).mean().backward()
            optimizer.step()
        stage.at("epoch end", member())
    return {"parameters": numbers(model), "steps": offcut.torch.steps(), "drawn": torch.rand(1).item()}
