"""Divides global batches among the members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offcut.errors import InputError


@dataclass(frozen=True, slots=True)
class Portion:
    """Samples of a global batch that one member's model sees together."""

    #: What the dataset is indexed with, by sample.
    indices: list[Any]
    #: The samples' positions in the global batch.
    rows: list[int]
    #: How much of the global batch they are, 0 to 1; 0 where another member works on them too.
    weight: float
    #: The stream of random numbers: the virtual shard's number, or the member's.
    stream: int


@dataclass(frozen=True, slots=True)
class BatchDivision:
    """How global batches are divided.

    Args:
        smallest: the fewest samples in a portion, unless the whole batch has fewer.
        shards: the number of virtual shards; None: one portion for each member.
        largest: the most samples in a portion; None: no limit.
    """

    smallest: int
    shards: int | None = None
    largest: int | None = None

    def portions(self, batch: list[Any], rank: int, world: int) -> list[Portion]:
        """Return what a member works on of a global batch.

        Without virtual shards it is every n-th sample for n members, so that shares differ by 1 at most. With them the
        batch is divided so into the shards, whatever the number of members, and a member works on every n-th shard.

        Args:
            batch: the samples of the global batch.
            rank: the member's number.
            world: how many members there are.

        Returns:
            The portions, at least one. A member for which there is none gets some of the first one, at weight 0.

        Raises:
            InputError: on all members, if a portion has more samples than `largest`.
        """
        count = max(1, min(self.shards or world, len(batch) // self.smallest))
        portion = -(-len(batch) // count)
        if self.largest is not None and portion > self.largest:
            raise self._too_large(len(batch), portion, world)
        mine = range(rank, count, world)
        if mine:
            return [self._portion(batch, i, count, weighs=True) for i in mine]
        return [self._portion(batch, 0, count, weighs=False)]

    def _too_large(self, samples: int, portion: int, world: int) -> InputError:
        least = -(-samples // (self.largest or 1))
        return InputError(
            f"offcut.torch: of a batch of {samples} samples, one of {world} members would work on {portion} at once, "
            f"more than max_local_batch={self.largest}.",
            next_step=f"Submit the job with at least {least} members (--sizes {least}:), or give elastic() "
            f"virtual_shards={least}: a member works on one shard at a time.",
        )

    def _portion(self, batch: list[Any], i: int, count: int, *, weighs: bool) -> Portion:
        rows = list(range(len(batch)))[i::count]
        if not weighs and self.shards is None:
            rows = rows[: self.smallest]
        return Portion([batch[row] for row in rows], rows, len(rows) / len(batch) if weighs else 0.0, i)
