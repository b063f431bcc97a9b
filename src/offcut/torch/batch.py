"""A rank's share of one global batch, as the training loop sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import TensorDataset, default_collate


class Batch:
    """Collated samples. `x` and `y` are the first and second field; iterating or indexing reaches them all."""

    __slots__ = ("data", "indices")

    def __init__(self, data: Any, indices: torch.Tensor) -> None:
        self.data = data
        #: Where in the dataset the samples are.
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


class Loader:
    """Fetches and collates samples of a map-style dataset, on the model's device."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any] | None, device: torch.device) -> None:
        self._dataset = dataset
        self._collate = collate or default_collate
        self._device = device
        # Whole tensors are indexed at once: the usual small dataset costs no loop over samples.
        self._whole = isinstance(dataset, TensorDataset) and collate is None

    def load(self, indices: torch.Tensor) -> Batch:
        data = self._dataset[indices] if self._whole else self._collate([self._dataset[i] for i in indices.tolist()])
        return Batch(_to(data, self._device), indices)


def _to(data: Any, device: torch.device) -> Any:
    if device.type == "cpu":
        return data
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, dict):
        return {key: _to(value, device) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(_to(value, device) for value in data)
    return data
