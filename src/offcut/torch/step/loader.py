"""Fetching the parts of a batch, in this process or ahead of time in processes of its own."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch
import torch.multiprocessing

from offcut.errors import OffcutError
from offcut.process.parent_death import die_with_parent
from offcut.torch.step.batch import Batch, Fetcher, to_device
from offcut.torch.step.batch_policy import Part


class Loader:
    """Loads samples: `load` returns a part's samples on the model's device; `expect` says which parts may follow."""

    def __init__(self, fetcher: Fetcher, device: torch.device) -> None:
        self._fetcher = fetcher
        self._device = device

    def load(self, part: Part, step: int) -> Batch:
        return Batch(to_device(self._fetch(part, step), self._device), part.indices)

    def _fetch(self, part: Part, step: int) -> Any:
        return self._fetcher.fetch(part.indices, step, part.stream)

    def expect(self, parts: Callable[[], Iterable[tuple[int, Part]]]) -> None:
        """Prepare for these (step, part), in the order in which they will be loaded if nothing changes until then."""

    def close(self) -> None:
        """Stop loading: no part will be asked for any more."""


class AheadLoader(Loader):
    """Fetches samples in `workers` processes, up to twice as many parts ahead.

    They are forked at once, so make it before anything opens a connection: a process that inherits one would keep it
    open after this one has died, and peers would not notice. What was fetched for a membership that has changed is
    dropped.
    """

    def __init__(self, fetcher: Fetcher, device: torch.device, workers: int) -> None:
        super().__init__(fetcher, device)
        self._ahead = 2 * workers
        # Processes of torch's context pass tensors through shared memory.
        context = torch.multiprocessing.get_context("fork")
        self._pool = ProcessPoolExecutor(workers, context, _begin, (fetcher, os.getpid()))
        self._pool.submit(os.getpid).result()
        self._futures: OrderedDict[tuple[Any, ...], Future[Any]] = OrderedDict()

    def _fetch(self, part: Part, step: int) -> Any:
        key = _key(part, step)
        future = self._futures.pop(key) if key in self._futures else self._submit(part, step)
        try:
            return future.result()
        except BrokenProcessPool:
            raise OffcutError(
                "A data loading process died.", next_step="Is its node short of memory? Try fewer loader_workers."
            ) from None

    def expect(self, parts: Callable[[], Iterable[tuple[int, Part]]]) -> None:
        wanted: OrderedDict[tuple[Any, ...], Future[Any]] = OrderedDict()
        for step, part in parts():
            if len(wanted) >= self._ahead:
                break
            key = _key(part, step)
            wanted[key] = self._futures.pop(key) if key in self._futures else self._submit(part, step)
        for stale in self._futures.values():
            stale.cancel()
        self._futures = wanted

    def _submit(self, part: Part, step: int) -> Future[Any]:
        return self._pool.submit(_fetch_here, part.indices.tolist(), step, part.stream)

    def close(self) -> None:
        self._futures.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _key(part: Part, step: int) -> tuple[Any, ...]:
    return (step, part.stream, tuple(part.indices.tolist()))


_fetcher: Fetcher | None = None


def _begin(fetcher: Fetcher, parent: int) -> None:
    """Prepare a new loading process. Runs in that process."""
    global _fetcher  # noqa: PLW0603 - what a pool's processes know is global to them
    die_with_parent(parent)
    torch.set_num_threads(1)
    _fetcher = fetcher


def _fetch_here(indices: list[int], step: int, stream: int) -> Any:
    assert _fetcher is not None
    return _fetcher.fetch(torch.tensor(indices, dtype=torch.int64), step, stream)
