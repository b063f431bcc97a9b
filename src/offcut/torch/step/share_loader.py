"""Loads this member's share of each global batch, by a DataLoader with the settings of the script's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from offcut.process.parent_death import die_with_parent
from offcut.torch.state.random_state import random_state, set_random_state
from offcut.torch.step.batch import LOADING, seed_everything

_CPU = torch.device("cpu")


class Share(list[Any]):
    """The indices of a share, and what the random numbers for loading it are seeded with: seed, place, rank."""

    seeded_by: tuple[int, int, int] = (0, 0, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        return _share, (list(self), self.seeded_by)


def _share(indices: list[Any], seeded_by: tuple[int, int, int]) -> Share:
    share = Share(indices)
    share.seeded_by = seeded_by
    return share


class _Seeded:
    """A dataset whose random numbers depend on the share that is loaded, not on what a process has loaded before."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        if name == "dataset":  # while it is copied to another process
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[index]

    def __getitems__(self, share: Share) -> Any:
        seed, place, stream = share.seeded_by
        seed_everything(seed, place, stream + LOADING, _CPU)
        several = getattr(self.dataset, "__getitems__", None)
        return several(list(share)) if several is not None else [self.dataset[index] for index in share]


class _InitWorker:
    """Runs at the start of a loading process. A forked one ends with its parent."""

    def __init__(self, own: Callable[[int], None] | None) -> None:
        self._parent = os.getpid()
        self._own = own

    def __call__(self, worker: int) -> None:
        if os.getppid() == self._parent:
            die_with_parent(self._parent)
        if self._own is not None:
            self._own(worker)


class _Shares:
    """What the DataLoader takes for its batch sampler: the shares that come next."""

    def __init__(self) -> None:
        self.coming: Iterator[list[Any]] = iter(())

    def __iter__(self) -> Iterator[list[Any]]:
        return self.coming


class ShareLoader:
    """Loads shares in the order in which they come; what was loaded ahead is dropped at `begin`.

    In a job make it before anything opens a connection: its processes start at once, and stay. A process that is forked
    later inherits the members' process groups, and may end the connections of its parent.

    Args:
        loader: the script's DataLoader.
        seeded: whether random numbers for loading depend on the share alone, as in a job.
    """

    def __init__(self, loader: DataLoader[Any], *, seeded: bool) -> None:
        self._shares = _Shares()
        options: dict[str, Any] = {
            "num_workers": loader.num_workers,
            "collate_fn": loader.collate_fn,
            "pin_memory": loader.pin_memory,
            "timeout": loader.timeout,
            "worker_init_fn": _InitWorker(loader.worker_init_fn) if seeded else loader.worker_init_fn,
            "multiprocessing_context": loader.multiprocessing_context,
            # In a job `DataOrder` has drawn what a DataLoader draws.
            "generator": None if seeded else loader.generator,
            "pin_memory_device": loader.pin_memory_device,
        }
        if loader.num_workers > 0:
            options["prefetch_factor"] = loader.prefetch_factor
            options["persistent_workers"] = seeded or loader.persistent_workers
        dataset = _Seeded(loader.dataset) if seeded else loader.dataset
        self._loader = DataLoader(dataset, batch_sampler=self._shares, **options)
        self._data: Iterator[Any] = iter(())
        if seeded and loader.num_workers > 0:
            before = random_state()
            iter(self._loader)
            set_random_state(before)

    def begin(self, shares: Iterator[list[Any]]) -> None:
        """Begin to load `shares`."""
        self._data = iter(())  # an iterator that ends takes its processes with it
        self._shares.coming = shares
        self._data = iter(self._loader)

    def next(self) -> Any:
        """Return the data of the next share, as the script's DataLoader would."""
        return next(self._data)

    def drop(self) -> None:
        """Drop what was loaded ahead."""
        self._data = iter(())
        self._shares.coming = iter(())
