"""Reads blocks of samples from the shards of a stream, in this process or in loading processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

from offcut.torch.step.batch import LOADING, seed_everything
from offcut.torch.step.share_loader import Share, ShareLoader

_CPU = torch.device("cpu")


class Block(NamedTuple):
    """Consecutive samples of a shard, and what random numbers for reading them are seeded with."""

    epoch: int
    shard: int
    position: int
    samples: int
    seed: int
    place: int


@dataclass(slots=True)
class _OpenShard:
    samples: Iterator[Any]
    epoch: int
    position: int
    ended: bool = False

    def follows(self, block: Block) -> bool:
        """Return whether `block` begins where the shard is, or after its end."""
        ahead = block.position - self.position
        return self.epoch == block.epoch and (ahead == 0 or (ahead > 0 and self.ended))


class ShardReader:
    """Reads blocks; shards stay open between blocks that follow each other. What a DataLoader takes for its dataset.

    Args:
        stream: has the shards.
        seeded: whether random numbers for reading depend on the block alone.
    """

    def __init__(self, stream: Any, *, seeded: bool) -> None:
        self._stream = stream
        self._seeded = seeded
        self._open: dict[int, _OpenShard] = {}
        self._epoch: int | None = None

    def __getitems__(self, blocks: Sequence[Block]) -> list[tuple[int, list[Any]]]:
        """Return the samples of each block, by shard; fewer than asked for where the shard ends."""
        found: dict[int, list[Any]] = {block.shard: [] for block in blocks}
        self._open = {shard: open_ for shard, open_ in self._open.items() if shard in found}
        opened = [(block, self._opened(block), found[block.shard]) for block in blocks]
        if self._seeded:
            for block, shard, samples in opened:
                seed_everything(block.seed, block.place, block.shard + LOADING, _CPU)
                while len(samples) < block.samples and self._read(shard, samples):
                    pass
        else:
            # In the order of the batch, as a script without offcut reads them.
            for turn in range(max((block.samples for block in blocks), default=0)):
                for block, shard, samples in opened:
                    if turn < block.samples:
                        self._read(shard, samples)
        return list(found.items())

    def _opened(self, block: Block) -> _OpenShard:
        shard = self._open.get(block.shard)
        if shard is not None and shard.follows(block):
            return shard
        if self._epoch != block.epoch and hasattr(self._stream, "set_epoch"):
            self._stream.set_epoch(block.epoch)
        self._epoch = block.epoch
        shard = _OpenShard(iter(self._stream.open(block.shard, block.position)), block.epoch, block.position)
        self._open[block.shard] = shard
        return shard

    @staticmethod
    def _read(shard: _OpenShard, samples: list[Any]) -> bool:
        """Read one more sample; return False at the shard's end."""
        if not shard.ended:
            try:
                samples.append(next(shard.samples))
            except StopIteration:
                shard.ended = True
            else:
                shard.position += 1
        return not shard.ended


class ShardReaders:
    """Reads what a member works on, by as many processes as the script's loader has: each reads some of the shards.

    Args:
        loader: the script's DataLoader.
        seeded: whether random numbers for reading depend on the block alone, as in a job.
    """

    def __init__(self, loader: DataLoader[Any], *, seeded: bool) -> None:
        processes = loader.num_workers
        self._count = max(1, processes)
        self._in_processes = processes > 0
        self._readers = []
        for i in range(self._count):
            options: dict[str, Any] = {}
            if processes > 0:
                options = {
                    "num_workers": 1,
                    "collate_fn": pickle.dumps,
                    "timeout": loader.timeout,
                    "worker_init_fn": _Numbered(loader.worker_init_fn, i),
                    "multiprocessing_context": loader.multiprocessing_context,
                    "prefetch_factor": loader.prefetch_factor,
                    "persistent_workers": loader.persistent_workers,
                }
            reader: DataLoader[Any] = DataLoader(
                ShardReader(loader.dataset, seeded=seeded),
                batch_sampler=[],
                generator=torch.Generator().manual_seed(i),
                **{"collate_fn": _as_it_is, **options},
            )
            self._readers.append(ShareLoader(reader, seeded=seeded))

    def begin(self, blocks: Callable[[], Iterator[list[Block]]]) -> None:
        """Begin to read.

        Args:
            blocks: returns the blocks of each batch that comes.
        """

        def part(i: int) -> Iterator[list[Any]]:
            for several in blocks():
                yield Share(several[i :: self._count])

        for i, reader in enumerate(self._readers):
            reader.begin(part(i))

    def next(self) -> dict[int, list[Any]]:
        """Return the samples of the next batch's blocks, by shard."""
        parts = [reader.next() for reader in self._readers]
        if self._in_processes:
            parts = [pickle.loads(part) for part in parts]
        return {shard: samples for part in parts for shard, samples in part}

    def drop(self) -> None:
        """Drop what was read ahead."""
        for reader in self._readers:
            reader.drop()


def _as_it_is(found: Any) -> Any:
    return found


class _Numbered:
    """Calls a script's `worker_init_fn` with the number of the loading process."""

    def __init__(self, own: Callable[[int], None] | None, number: int) -> None:
        self._own = own
        self._number = number

    def __call__(self, _: int) -> None:
        if self._own is not None:
            self._own(self._number)
