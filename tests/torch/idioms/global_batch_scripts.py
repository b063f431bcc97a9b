"""Training scripts whose losses or layers see the whole global batch; see `real_members` for how they run."""

from __future__ import annotations

from typing import Any

import torch
from elastic_scripts import member, squared
from idiom_scripts import BATCH, data, network, numbers
from real_members import Stage
from shard_scripts import SHARDS, buffers
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

import offcut.torch


def contrastive(z: torch.Tensor) -> torch.Tensor:
    """The loss of SimCLR for two views, one after the other: each row is to find its other view among all rows."""
    z = functional.normalize(z, dim=1)
    near = z @ z.T / 0.5 - 1e9 * torch.eye(len(z))
    other = torch.arange(len(z)).roll(len(z) // 2)
    return functional.cross_entropy(near, other)


def compares_samples(
    stage: Stage, *, elastic: bool = True, own: bool = False, shards: int | None = None
) -> dict[str, Any]:
    """Learns from pairs of views; with `own`, each member's loss is of its own samples against all."""
    model = network()
    model[-1] = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    # The last batch has one sample.
    loader: Any = DataLoader(data(33), BATCH, shuffle=True, generator=torch.Generator().manual_seed(4))
    if elastic:
        model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, virtual_shards=shards)
    told = []
    for _ in offcut.torch.epochs(4) if elastic else range(4):
        for batch in loader:
            if elastic:
                stage.at("step", member())
            x = torch.cat([x for x, _ in batch]) if shards else batch[0]
            views = model(torch.cat([x, x.flip(1)]))
            everyone = offcut.torch.all_gather(views) if elastic else views
            samples = offcut.torch.all_gather(x) if elastic else x
            if own:
                one, other = views.chunk(2)
                answers = (x.unsqueeze(1) == samples).all(2).int().argmax(1)
                loss = functional.cross_entropy(one @ everyone.chunk(2)[1].T, answers)
                loss = loss + functional.cross_entropy(other @ everyone.chunk(2)[0].T, answers)
            else:
                loss = contrastive(everyone) + 0.1 * samples.square().mean() * everyone.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not elastic or not optimizer.step_was_skipped:
                told.append(loss.item())
    return {"parameters": numbers(model), "told": [] if own else told[-1:]}


def synchronised(
    stage: Stage, *, elastic: bool = True, accumulate: int = 1, recomputed: bool = False, compiled: bool = False
) -> dict[str, Any]:
    """BatchNorm over the global batch, once for rows and once for images."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(3)
    model: Any = nn.Sequential(
        nn.Linear(4, 8),
        nn.BatchNorm1d(8),
        nn.Tanh(),
        nn.Unflatten(1, (2, 2, 2)),
        nn.BatchNorm2d(2, affine=False, momentum=None),
        nn.Flatten(),
        nn.Linear(8, 1),
    )
    if elastic:
        model = offcut.torch.SyncBatchNorm.convert_sync_batchnorm(model)
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader: Any = DataLoader(data(37), BATCH, shuffle=True, generator=torch.Generator().manual_seed(4))
    if elastic:
        model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader)
    forward = torch.compile(model, backend="aot_eager") if compiled else model
    for _ in offcut.torch.epochs(5) if elastic else range(5):
        for i, (x, y) in enumerate(loader):
            if elastic:
                stage.at("step", member())
            predicted = checkpoint(forward, x, use_reentrant=False) if recomputed else forward(x)
            loss = (predicted - y).square().mean()
            (loss / accumulate).backward()
            if loader.completes(accumulate) if elastic else (i + 1) % accumulate == 0 or i + 1 == len(loader):
                optimizer.step()
                optimizer.zero_grad()
    model.eval()
    evaluated = squared(model, *data(11).tensors).mean().item()
    return {"parameters": numbers(model), "buffers": buffers(model), "evaluated": evaluated}


def synchronises_shards(stage: Stage) -> None:
    """Has both virtual shards and statistics over all of them."""
    model = offcut.torch.SyncBatchNorm.convert_sync_batchnorm(network(nn.BatchNorm1d(6)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, DataLoader(data(), BATCH), virtual_shards=SHARDS)
    for _ in offcut.torch.epochs(1):
        for shards in loader:
            for x, _y in shards:
                model(x)
