"""One part of a global batch, as the training loop sees it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset, default_collate

_CPU = torch.device("cpu")
#: Added to a stream: the random numbers for loading samples, which are not to be those of the forward pass. Streams
#: below it, and this many times it, have other numbers in any step that a training comes to.
LOADING = 1 << 45


class Batch:
    """Collated samples. `x` and `y` are the first and second field; iterating or indexing reaches them all."""

    __slots__ = ("data", "indices")

    def __init__(self, data: Any, indices: torch.Tensor) -> None:
        self.data = data
        #: Positions of the samples in the dataset.
        self.indices = indices

    @property
    def x(self) -> Any:
        return self.data[0]

    @property
    def y(self) -> Any:
        return self.data[1]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def __getitem__(self, key: Any) -> Any:
        return self.data[key]


class Fetcher:
    """Fetches and collates samples of a map-style dataset, on the CPU."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any] | None, seed: int) -> None:
        self._dataset = dataset
        self._collate = collate or default_collate
        self._seed = seed
        # Whole tensors are indexed at once, so that the usual small dataset needs no loop over samples.
        self._whole = isinstance(dataset, TensorDataset) and collate is None

    def fetch(self, indices: torch.Tensor, step: int, stream: int) -> Any:
        """Return the samples at `indices`. Random numbers drawn for them depend on step and stream alone."""
        if self._whole:
            return self._dataset[indices]
        seed_everything(self._seed, step, stream + LOADING, _CPU)
        several, wanted = getattr(self._dataset, "__getitems__", None), indices.tolist()
        return self._collate(several(wanted) if several is not None else [self._dataset[i] for i in wanted])


def to_device(data: Any, device: torch.device) -> Any:
    """Return `data` with every tensor in it on `device`."""
    if device.type == "cpu":
        return data
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, dict):
        return {key: to_device(value, device) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(to_device(value, device) for value in data))
    if isinstance(data, (list, tuple)):
        return type(data)(to_device(value, device) for value in data)
    return data


def seed_everything(seed: int, step: int, stream: int, device: torch.device) -> None:
    """Seed random numbers by the position of the training, not by what this process did before.

    `device` is where the training draws some besides the CPU.
    """
    number = ((seed * 1_000_003 + step) * 65_537 + stream) % 2**63
    if device.type == "cpu":
        # torch.manual_seed also seeds every type of device, which takes as long as a small layer.
        torch.default_generator.manual_seed(number)
    else:
        torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)
