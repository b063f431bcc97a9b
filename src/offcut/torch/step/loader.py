"""Loads the parts of a session's global batches, by a DataLoader, in this process or ahead of time in others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from offcut.errors import OffcutError
from offcut.torch.step.batch import Batch, to_device
from offcut.torch.step.batch_policy import Part
from offcut.torch.step.share_loader import Share, ShareLoader

#: What a part is called here: its step, stream and samples.
_Key = tuple[int, int, list[int]]


class PartLoader:
    """Loads parts, and further ones ahead as long as they come in the order that was foreseen.

    Make it before anything opens a connection (see `ShareLoader`).

    Args:
        dataset: map-style: `len` and indexing.
        collate: joins a list of samples, as in a DataLoader; None: torch's own.
        workers: processes that load ahead of time; 0: none.
        device: where the batches are wanted.
        seed: random numbers drawn for a part depend on this, its step and its stream alone.
    """

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[list[Any]], Any] | None,
        workers: int,
        device: torch.device,
        seed: int,
    ) -> None:
        #: Indexing whole tensors takes less time than a DataLoader takes by itself.
        self._tensors: TensorDataset | None = None
        if isinstance(dataset, TensorDataset) and collate is None:
            self._tensors = dataset if workers == 0 else None
            dataset, collate = _WholeTensors(dataset), _as_it_is
        loader: DataLoader[Any] = DataLoader(
            dataset,
            collate_fn=collate,
            num_workers=workers,
            pin_memory=device.type == "cuda",
            # Forked: a dataset need not be one that can be sent to another process.
            multiprocessing_context="fork" if workers else None,
        )
        self._shares: ShareLoader | None = ShareLoader(loader, seeded=True)
        self._device = device
        self._seed = seed
        #: The parts that are foreseen and were not given to the DataLoader; those that were, and were not loaded.
        self._foreseen: Iterator[tuple[int, Part]] = iter(())
        self._begun: deque[_Key] = deque()
        #: One that was looked at, and still has to be given to the DataLoader.
        self._next: tuple[int, Part] | None = None

    def load(self, part: Part, step: int, following: Callable[[], Iterator[tuple[int, Part]]]) -> Batch:
        """Return the samples of a part, on the device.

        Args:
            part: the part.
            step: the number of the step that it belongs to.
            following: yields (step, part) for the parts that come after this one if nothing changes.

        Raises:
            OffcutError: a process that loads has died.
        """
        assert self._shares is not None, "it was closed"
        if self._tensors is not None:
            return Batch(to_device(self._tensors[part.indices], self._device), part.indices)
        if self._comes_next() != _key(part, step):
            self._begun.clear()
            self._next = None
            self._foreseen = chain([(step, part)], following())
            self._shares.begin(self._give())
        try:
            data = self._shares.next()
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise OffcutError(
                "A data loading process died.", next_step="Is its node short of memory? Try fewer loader_workers."
            ) from None
        self._begun.popleft()
        return Batch(to_device(data, self._device), part.indices)

    def close(self) -> None:
        """Stop loading: no part will be asked for any more."""
        # A DataLoader ends its processes when it is gone.
        self._shares = None

    def _comes_next(self) -> _Key | None:
        if self._begun:
            return self._begun[0]
        if self._next is None:
            self._next = next(self._foreseen, None)
        return None if self._next is None else _key(self._next[1], self._next[0])

    def _give(self) -> Iterator[list[Any]]:
        """Yield the shares that the DataLoader is to load."""
        while True:
            item, self._next = self._next or next(self._foreseen, None), None
            if item is None:
                return
            step, part = item
            self._begun.append(_key(part, step))
            share = Share(part.indices.tolist())
            share.seeded_by = (self._seed, step, part.stream)
            yield share


def _key(part: Part, step: int) -> _Key:
    return step, part.stream, part.indices.tolist()


class _WholeTensors:
    """Tensors that are indexed at once, so that the usual small dataset needs no loop over samples."""

    def __init__(self, dataset: TensorDataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitems__(self, indices: list[int]) -> Any:
        return self._dataset[torch.tensor(indices, device="cpu")]


def _as_it_is(data: Any) -> Any:
    return data
