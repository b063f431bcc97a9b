"""Streams that can be read at any size: a fixed number of shards, each read from any position."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import IterableDataset


class ShardedStream(IterableDataset[Any]):
    """A dataset that is read in order, in a fixed number of shards.

    Sample i of a data epoch is sample i // shards of shard i % shards, so the global batches do not depend on the
    number of members. Members read whole shards. After a change of members, and after a step that failed, they open
    them again where the training is. Another dataset with `shards` and `open` does as well.

    A subclass may have `set_epoch(epoch)`, which is called before shards are opened for a data epoch.
    """

    #: How many shards there are: the same in every run, at least as many as members, at most the batch size.
    shards: int

    @abstractmethod
    def open(self, shard: int, position: int) -> Iterable[Any]:
        """Return the samples of a shard from a position on: the same ones whenever it is opened.

        Args:
            shard: its number, from 0.
            position: how many samples of the shard are left out; it may be beyond its end.
        """

    def __iter__(self) -> Iterator[Any]:
        """Yield all samples in order, as a script without offcut reads them."""
        left = [iter(self.open(shard, 0)) for shard in range(self.shards)]
        while left:
            for shard in list(left):
                try:
                    sample = next(shard)
                except StopIteration:
                    left.remove(shard)
                    continue
                yield sample


def is_sharded(dataset: Any) -> bool:
    """Return whether a dataset is a stream with shards."""
    return hasattr(dataset, "shards") and hasattr(dataset, "open")
