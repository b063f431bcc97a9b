"""Training scripts with what models and optimizers of today have; see `real_members` for how they run.

With `elastic=False` each is the same in plain torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from elastic_scripts import member
from idiom_scripts import BATCH, data, numbers
from real_members import Stage
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

import offcut.torch


class Adapted(nn.Module):
    """A layer with frozen weights, and an update of low rank that is trained."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner
        for p in inner.parameters():
            p.requires_grad_(False)
        self.down, self.up = nn.Linear(4, 2, bias=False), nn.Linear(2, 6, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.inner(x) + self.up(self.down(x))
        return added


class Sharpness:
    """Sharpness-aware minimisation around an optimizer: the gradient is that at a point a little further up."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.parameters = optimizer.param_groups[0]["params"]
        self.moved: list[torch.Tensor] = []

    @torch.no_grad()
    def climb(self) -> None:
        norm = torch.stack([p.grad.norm() for p in self.parameters]).norm()
        self.moved = [0.1 * p.grad / norm for p in self.parameters]
        torch._foreach_add_(self.parameters, self.moved)

    @torch.no_grad()
    def back(self) -> None:
        torch._foreach_sub_(self.parameters, self.moved)


def plain_network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 1))


def adapted(base_seed: int = 5) -> nn.Sequential:
    torch.manual_seed(base_seed)
    inner = nn.Linear(4, 6)
    torch.manual_seed(3)
    return nn.Sequential(Adapted(inner), nn.Tanh(), nn.Linear(6, 1))


def images() -> nn.Sequential:
    model = nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)),
        nn.Conv2d(1, 4, 2, padding=1),
        nn.Tanh(),
        nn.Conv2d(4, 3, 2),
        nn.Flatten(),
        nn.Linear(12, 1),
    )
    return model.to(memory_format=torch.channels_last)


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(trained(model), lr=0.05, momentum=0.9)


def clip(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)


#: By name: what makes the model, and its optimizer or optimizers.
KINDS: dict[str, tuple[Callable[[], nn.Sequential], Callable[[Any], Any]]] = {
    "unfreezes": (plain_network, lambda model: torch.optim.SGD(model[4].parameters(), lr=0.05, momentum=0.9)),
    "adapted": (adapted, sgd),
    "hooked": (plain_network, sgd),
    "channels-last": (images, lambda model: torch.optim.AdamW(model.parameters(), lr=0.02, fused=True)),
    "recomputed": (plain_network, sgd),
    "compiled": (plain_network, sgd),
    "sharpness": (plain_network, lambda model: torch.optim.SGD(model.parameters(), lr=0.05)),
    "muon": (
        plain_network,
        lambda model: [
            torch.optim.Muon([p for p in model.parameters() if p.dim() == 2], lr=0.01),
            torch.optim.AdamW([p for p in model.parameters() if p.dim() != 2], lr=0.02),
        ],
    ),
}


def trains(
    stage: Stage, *, kind: str, elastic: bool = True, accumulate: int = 1, epochs: int = 5, **options: Any
) -> dict[str, Any]:
    """One of KINDS, with gradients of several batches in a step."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(3)
    make_model, make_optimizer = KINDS[kind]
    model = make_model()
    optimizer = make_optimizer(model)
    loader: Any = DataLoader(data(37), BATCH, shuffle=True, generator=torch.Generator().manual_seed(4))
    if elastic:
        model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, **options)
    optimizers = optimizer if isinstance(optimizer, list) else [optimizer]
    forward = torch.compile(model, backend="aot_eager") if kind == "compiled" else model
    sharpness = Sharpness(optimizers[0])
    if kind == "hooked":
        # Works on the gradient of the whole batch, and on each update once.
        optimizer.register_step_pre_hook(lambda *_: clip(model))
    for epoch in offcut.torch.epochs(epochs) if elastic else range(epochs):
        if kind == "unfreezes":
            # A layer more each epoch, and in the end the last one less.
            if epoch in (1, 2):
                optimizer.add_param_group({"params": list(model[4 - 2 * epoch].parameters()), "lr": 0.02})
            for place, trains_in in ((4, range(3)), (2, range(1, epochs)), (0, range(2, epochs))):
                for p in model[place].parameters():
                    p.requires_grad_(epoch in trains_in)
        for i, (x, y) in enumerate(loader):
            if elastic:
                stage.at("step", member())
            predicted = checkpoint(forward, x, use_reentrant=False) if kind == "recomputed" else forward(x)
            ((predicted - y).square().mean() / accumulate).backward()
            if not (loader.completes(accumulate) if elastic else (i + 1) % accumulate == 0 or i + 1 == len(loader)):
                continue
            if kind == "sharpness":
                if elastic:
                    offcut.torch.reduce_gradients(again=True)
                sharpness.climb()
                optimizer.zero_grad()
                (model(x) - y).square().mean().backward()
                sharpness.back()
            for item in optimizers:
                item.step()
                item.zero_grad()
    result = {"parameters": numbers(model)}
    if elastic:
        result["sent"] = list(member().state.tree()["model"])
    return result


def has_sparse_gradients(stage: Stage) -> None:
    """An embedding whose gradients are sparse."""
    model = nn.EmbeddingBag(10, 3, mode="sum", sparse=True)
    offcut.torch.elastic(model, torch.optim.SparseAdam(model.parameters()), DataLoader(data(), BATCH))


def makes_other_frozen_weights(stage: Stage) -> None:
    """The frozen weights are random numbers, others on each member."""
    torch.set_default_dtype(torch.float64)
    model = adapted(base_seed=6 if stage.name.startswith("n1#") else 5)
    _, optimizer, loader = offcut.torch.elastic(model, sgd(model), DataLoader(data(), BATCH), without_frozen=True)
    for _ in offcut.torch.epochs(1):
        for x, _y in loader:
            stage.at("step", member())
            model(x).sum().backward()
            optimizer.step()
