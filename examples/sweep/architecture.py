"""One trial of an architecture search: a convolutional network of two equal cells learns digits.

    python examples/sweep/architecture.py --nodes=2 --op1=conv3 --in1=0 --op2=skip --in2=0      # alone
    offcut sweep examples/sweep/architecture.toml --follow                                      # regularised evolution
    offcut sweep examples/sweep/architecture-asha.toml --follow                                 # successive halving

A cell is a graph of one to four nodes. Node 0 is the cell's input; node i applies the operation `op i` to the node
`in i` before it. What no other node uses is added up: the cell's output. The objective is the error on digits that are
not trained on, after each pass over the data.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import offcut.torch

MOST_NODES = 4


def convolution(channels: int, size: int, groups: int = 1) -> nn.Module:
    return nn.Conv2d(channels, channels, size, padding=size // 2, groups=groups, bias=False)


def activated(channels: int, *layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers, nn.GroupNorm(2, channels), nn.ReLU())


OPERATIONS: dict[str, Callable[[int], nn.Module]] = {
    "conv3": lambda channels: activated(channels, convolution(channels, 3)),
    "conv1": lambda channels: activated(channels, convolution(channels, 1)),
    "separable3": lambda channels: activated(channels, convolution(channels, 3, channels), convolution(channels, 1)),
    "max3": lambda channels: nn.MaxPool2d(3, stride=1, padding=1),
    "mean3": lambda channels: nn.AvgPool2d(3, stride=1, padding=1),
    "skip": lambda channels: nn.Identity(),
}


class Cell(nn.Module):
    """The graph: `inputs[i]` is the node to which the operation of node i + 1 is applied."""

    def __init__(self, operations: list[str], inputs: list[int], channels: int) -> None:
        super().__init__()
        self.operations = nn.ModuleList(OPERATIONS[name](channels) for name in operations)
        self.inputs = inputs
        self.outputs = [node for node in range(len(inputs) + 1) if node not in inputs]

    def forward(self, x: Tensor) -> Tensor:
        nodes = [x]
        for operation, source in zip(self.operations, self.inputs, strict=True):
            nodes.append(operation(nodes[source]))
        return sum(nodes[output] for output in self.outputs)


# What all trials read: a sweep loads it once on each node, and each trial is a fork that begins with `trial`.
pixels, target = load_digits(return_X_y=True)
x, y = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16.0, torch.tensor(target)
train, test = slice(0, 1200), slice(1200, None)


def build(params: dict[str, Any], channels: int = 8) -> nn.Module:
    nodes = range(1, params["nodes"] + 1)
    operations = [params[f"op{node}"] for node in nodes]
    inputs = [params.get(f"in{node}", 0) for node in nodes]
    return nn.Sequential(
        activated(channels, nn.Conv2d(1, channels, 3, padding=1, bias=False)),
        Cell(operations, inputs, channels),
        nn.MaxPool2d(2),
        Cell(operations, inputs, channels),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * channels, 10),
    )


def trial(params: dict[str, Any]) -> None:
    torch.manual_seed(0)
    data = TensorDataset(x[train], y[train])
    loader = DataLoader(data, 100, shuffle=True, generator=torch.Generator().manual_seed(1))
    model = build(params)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    # The schedule is laid out for a whole trial: a trial that halts at a rung goes on with it later.
    epochs = int(offcut.torch.max_budget() or params["epochs"])
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, state=[scheduler])

    error = 1.0
    for epoch in offcut.torch.epochs(epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            offcut.torch.report_loss(loss)
            optimizer.step()
            scheduler.step()
        with torch.no_grad():
            error = (model(x[test]).argmax(1) != y[test]).float().mean().item()
        offcut.torch.report_objective(error, budget=epoch + 1)
    if offcut.torch.once():
        weights = sum(parameter.numel() for parameter in model.parameters())
        print(f"error {error:.4f} with {weights:,} weights")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a network of two cells on digits.")
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--nodes", type=int, default=1)
    for node in range(1, MOST_NODES + 1):
        parser.add_argument(f"--op{node}", choices=tuple(OPERATIONS), default="conv3")
        parser.add_argument(f"--in{node}", type=int, choices=range(node), default=0)
    trial(vars(parser.parse_args()))
