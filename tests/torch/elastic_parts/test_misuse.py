"""Errors of scripts that use the elastic parts wrongly, in a script by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import offcut.torch
from offcut.errors import InputError

SAMPLES, BATCH = 50, 8


def plain_data() -> TensorDataset:
    x = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x.sum(1, keepdim=True))


def small() -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    torch.manual_seed(3)
    model = nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(plain_data(), BATCH)


class Stream(offcut.torch.ShardedStream):
    shards = 4

    def open(self, shard: int, position: int) -> Iterator[torch.Tensor]:
        yield from torch.rand(9, 4)[position:]


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        yield from range(10**9)


def looks_at_a_batch(model: Any, optimizer: Any, loader: Any) -> None:
    next(iter(loader))
    list(offcut.torch.epochs(2))


def goes_back(model: Any, optimizer: Any, loader: Any) -> None:
    first, second = iter(loader), iter(loader)
    for batches in (first, second, first):
        model(next(batches)[0]).sum().backward()
        optimizer.step()


def two_loops(model: Any, optimizer: Any, loader: Any) -> None:
    for _ in offcut.torch.epochs(1):
        for _ in range(2):
            for x, _ in loader:
                model(x).sum().backward()
                optimizer.step()


def second_training(model: Any, optimizer: Any, loader: Any) -> None:
    for _ in offcut.torch.epochs(2):
        for x, _ in loader:
            model(x).sum().backward()
            optimizer.step()
        offcut.torch.elastic(*small())


def two_steps(model: Any, optimizer: Any, loader: Any) -> None:
    for _ in offcut.torch.epochs(1):
        for x, _ in loader:
            model(x).sum().backward()
            optimizer.step()
            optimizer.step()


def steps_left(model: Any, optimizer: Any, loader: Any) -> None:
    for _ in offcut.torch.epochs(1):
        for i, (x, _) in enumerate(loader):
            model(x).sum().backward()
            if i % 2:
                optimizer.step()


def clips(model: Any, optimizer: Any, loader: Any) -> None:
    for _ in offcut.torch.epochs(1):
        for x, _ in loader:
            model(x).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


def mean_after_the_step(model: Any, optimizer: Any, loader: Any) -> None:
    for _ in offcut.torch.epochs(1):
        for x, _ in loader:
            model(x).sum().backward()
            optimizer.step()
            offcut.torch.mean(1.0)


def epochs_twice(model: Any, optimizer: Any, loader: Any) -> None:
    for _ in range(2):
        list(offcut.torch.epochs(2))


def mean_values(model: Any, optimizer: Any, loader: Any) -> None:
    offcut.torch.evaluate(DataLoader(plain_data(), 3), lambda x, y: (model(x) - y).mean())


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (looks_at_a_batch, r"left before its first optimizer.step\(\)"),
        (goes_back, "goes on with a loop over the elastic loader that it has left"),
        (two_loops, "a second loop over the elastic loader in one epoch"),
        (second_training, r"an elastic training already.*\[optimizer1, optimizer2\], \[loader1, loader2\]"),
        (two_steps, r"a second one for a batch.*\[optimizer\]"),
        (steps_left, "no more batches in this epoch"),
        (clips, "gradients were changed between backward"),
        (mean_after_the_step, r"mean\(\) outside of a step"),
        (epochs_twice, r"a loop over epochs\(\) after another one has ended the training"),
        (mean_values, "no value for each sample"),
        (lambda m, o, loader: offcut.torch.elastic(m, [o, 1], loader), "an optimizer is of the type int"),
        (lambda m, o, loader: offcut.torch.elastic(m, o, [small()[2], 2]), "the loader is of the type int"),
        (lambda m, o, loader: offcut.torch.elastic(m, o, DataLoader(plain_data(), None)), "makes no batches"),
        (lambda m, o, loader: offcut.torch.elastic(m, o, DataLoader(Endless(), 4)), "a stream without shards"),
        (lambda m, o, loader: offcut.torch.elastic(m, o, DataLoader(Stream(), 3)), "of 4 shards, and batches of 3"),
        (lambda m, o, loader: offcut.torch.elastic(m, o, loader, state=[3]), r"state\[0\] is of the type int"),
        (lambda m, o, _: offcut.torch.elastic(m, o, DataLoader(plain_data()), virtual_shards=0), "virtual_shards is 0"),
        (
            lambda m, o, _: offcut.torch.elastic(m, o, DataLoader(plain_data()), max_local_batch=0),
            "max_local_batch is 0",
        ),
        (lambda m, o, loader: offcut.torch.elastic(nn.SyncBatchNorm(4), o, loader), "which know no members"),
        (
            lambda m, o, loader: offcut.torch.elastic(m, torch.optim.LBFGS(m.parameters()), loader),
            "LBFGS computes several gradients",
        ),
    ],
)
def test_misuse_gets_a_sentence(act: Callable[..., None], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        act(*offcut.torch.elastic(*small()))


def test_calls_without_a_training_get_a_sentence() -> None:
    for call in (lambda: offcut.torch.epochs(1), offcut.torch.once, offcut.torch.reduce_gradients):
        with pytest.raises(InputError, match="without an elastic training"):
            call()
