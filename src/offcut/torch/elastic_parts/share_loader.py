"""Loads this member's share of each global batch, by a DataLoader with the settings of the script's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from offcut.process.parent_death import die_with_parent
from offcut.torch.elastic_parts.random_state import random_state, set_random_state
from offcut.torch.step.batch import seed_everything

_CPU = torch.device("cpu")


def share_of(batch: list[Any], rank: int, world: int, smallest: int) -> tuple[list[Any], float]:
    """Return what a member works on of a global batch, and how much of the batch that is.

    Args:
        batch: the samples of the global batch.
        rank: the member's number.
        world: how many members there are.
        smallest: the fewest samples that a member works on, unless the whole batch has fewer.

    Returns:
        Every n-th sample for n members, so that shares differ by 1 at most, and their part of the batch, 0 to 1. A
        member for which there are not enough samples gets some of the first member's, at 0.
    """
    members = max(1, min(world, len(batch) // smallest))
    if rank < members:
        share = batch[rank::members]
        return share, len(share) / len(batch)
    return batch[::members][:smallest], 0.0


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
        seed_everything(*share.seeded_by, _CPU)
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
        in_job: whether there are, or may be, other members. Then random numbers for loading depend on the share alone.
    """

    def __init__(self, loader: DataLoader[Any], *, in_job: bool) -> None:
        self._shares = _Shares()
        options: dict[str, Any] = {
            "num_workers": loader.num_workers,
            "collate_fn": loader.collate_fn,
            "pin_memory": loader.pin_memory,
            "timeout": loader.timeout,
            "worker_init_fn": _InitWorker(loader.worker_init_fn) if in_job else loader.worker_init_fn,
            "multiprocessing_context": loader.multiprocessing_context,
            # In a job `DataOrder` has drawn what a DataLoader draws.
            "generator": None if in_job else loader.generator,
            "pin_memory_device": loader.pin_memory_device,
        }
        if loader.num_workers > 0:
            options["prefetch_factor"] = loader.prefetch_factor
            options["persistent_workers"] = in_job or loader.persistent_workers
        dataset = _Seeded(loader.dataset) if in_job else loader.dataset
        self._loader = DataLoader(dataset, batch_sampler=self._shares, **options)
        self._data: Iterator[Any] = iter(())
        if in_job and loader.num_workers > 0:
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
