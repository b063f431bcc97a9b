"""A script with the elastic parts, run by itself, is plain PyTorch bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, Sampler, TensorDataset, WeightedRandomSampler

import offcut.torch
from offcut.errors import InputError
from offcut.torch.elastic_parts import elastic_training

SAMPLES, BATCH = 50, 8


@pytest.fixture(autouse=True)
def no_training_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic_training, "_current", None)


class Noisy(Dataset):
    """Samples with random numbers of all three kinds."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.rand(4) + random.random() + float(np.random.rand())
        return i / SAMPLES + noise, torch.tensor([float(i)]) / SAMPLES


class Drawing(Sampler):
    """Draws from Python's generator while the training goes on."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(SAMPLES):
            yield random.randrange(SAMPLES)

    def __len__(self) -> int:
        return SAMPLES


def plain_data() -> TensorDataset:
    x = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x.sum(1, keepdim=True))


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "shuffled": lambda: DataLoader(plain_data(), BATCH, shuffle=True),
    "in order, without the last": lambda: DataLoader(plain_data(), BATCH, drop_last=True),
    "own generator": lambda: DataLoader(plain_data(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(5)),
    "weighted": lambda: DataLoader(
        plain_data(), BATCH, sampler=WeightedRandomSampler(torch.arange(1.0, SAMPLES + 1), 30)
    ),
    "draws on the way": lambda: DataLoader(plain_data(), BATCH, sampler=Drawing()),
    "batch sampler": lambda: DataLoader(plain_data(), batch_sampler=BatchSampler(Drawing(), 7, True)),
    "augmented": lambda: DataLoader(Noisy(), BATCH, shuffle=True),
    "augmented by processes": lambda: DataLoader(Noisy(), BATCH, shuffle=True, num_workers=2),
    "processes that stay": lambda: DataLoader(
        plain_data(), BATCH, shuffle=True, num_workers=1, persistent_workers=True
    ),
}


def trained(elastic: bool, loader: DataLoader[Any], *, accumulate: int = 1, clip: bool = False) -> list[torch.Tensor]:
    """Return what three epochs make of a network: all of its state, after each."""
    torch.manual_seed(3)
    random.seed(4)
    np.random.seed(5)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Tanh(), nn.Linear(6, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    if elastic:
        model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, state=[scheduler])
    seen = []
    for epoch in offcut.torch.epochs(3) if elastic else range(3):
        for i, (x, y) in enumerate(loader):
            loss = (model(x) - y).square().mean() / accumulate
            loss.backward()
            if (i + 1) % accumulate == 0 or i + 1 == len(loader):
                if clip:
                    if elastic:
                        offcut.torch.reduce_gradients()
                    seen.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()
        seen += [value.clone() for value in model.state_dict().values()]
        seen += [torch.tensor([epoch, optimizer.param_groups[0]["lr"]]), loss.detach(), torch.rand(2)]
    return seen


def same_bits(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return len(one) == len(two) and all(map(torch.equal, one, two))


@pytest.mark.parametrize("name", LOADERS)
def test_the_training_is_the_plain_one(name: str) -> None:
    assert same_bits(trained(True, LOADERS[name]()), trained(False, LOADERS[name]()))


@pytest.mark.parametrize("options", [{"accumulate": 3}, {"clip": True}, {"accumulate": 2, "clip": True}])
def test_accumulating_and_clipping_are_the_plain_ones(options: dict[str, Any]) -> None:
    loader = LOADERS["shuffled"]
    assert same_bits(trained(True, loader(), **options), trained(False, loader(), **options))
