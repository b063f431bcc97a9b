"""The global batches of a stream with shards.

Which samples a batch has follows from its offset, so no position has to be sent or saved. Where shards end is known
only to the members that read them. So before each batch the members tell each other how many samples of it there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import torch
from torch.utils.data import DataLoader

from offcut.errors import InputError
from offcut.torch.elastic_parts.batch_division import BatchDivision, Portion
from offcut.torch.elastic_parts.loop_random import LoopRandom
from offcut.torch.elastic_parts.shard_reader import Block, ShardReaders
from offcut.torch.membership.process_group import Group
from offcut.torch.state.cursor import Cursor
from offcut.torch.step.batch import LOADING, seed_everything

_CPU = torch.device("cpu")


class StreamBatches:
    """See `BatchSource`. A batch has fewer samples than the others where shards have ended.

    Args:
        loader: the script's DataLoader of a stream with shards.
        division: into how many portions batches are divided.
        random: the random numbers around the loops.

    Raises:
        InputError: the batches do not fit to the shards.
    """

    def __init__(self, loader: DataLoader[Any], division: BatchDivision, random: LoopRandom) -> None:
        self._loader = loader
        self._division = division
        self._random = random
        self._stream: Any = loader.dataset
        self._shards = _checked_shards(loader, division.smallest)
        self._batch = loader.batch_size or 0
        #: The most portions: each has whole shards, and samples enough.
        self._most = self._shards // -(-division.smallest // (self._batch // self._shards))
        self._readers = ShardReaders(loader, seeded=random.seeded)
        self._group: Group | None = None
        self._epoch = -1
        #: By offset: how many samples of each shard the batch has, and this member's samples by shard.
        self._counts: dict[int, list[int]] = {}
        self._samples: dict[int, dict[int, list[Any]]] = {}
        #: The offset of the batch that the readers read next; None: they are not reading.
        self._reading: int | None = None
        #: Samples for a member that has none of its own in a batch.
        self._spare: list[Any] = []

    @property
    def length(self) -> int:
        """See `BatchSource`."""
        return len(self._loader)

    def begin(self, epoch: int, group: Group | None) -> None:
        """See `BatchSource`."""
        self._random.begin(epoch, self._loader.generator)
        if not self._random.seeded:
            # What a DataLoader draws.
            torch.empty((), dtype=torch.int64).random_(generator=self._loader.generator)
        self.drop()
        self._epoch = epoch

    def drop(self) -> None:
        """See `BatchSource`."""
        self._readers.drop()
        self._counts, self._samples, self._reading, self._group = {}, {}, None, None

    # -- what there is ------------------------------------------------------------------------------------------------

    def look(self, group: Group, cursor: Cursor, offset: int) -> None:
        """See `BatchSource`: also whether there is a batch after that at `offset`, for `has`."""
        if self._group is not group:
            self.drop()
            self._group = group
        for known in (self._counts, self._samples):
            for past in [key for key in known if key < cursor.offset]:
                del known[past]
        self._count(offset)
        if self._random.seeded and self.has(offset):
            self._count(offset + 1)

    def _count(self, offset: int) -> None:
        """Find out how many samples each shard has for a batch. Raises Abandoned."""
        group = self._group
        if offset in self._counts or group is None:
            return
        self._read(group, offset)
        counts = torch.zeros(self._shards, dtype=torch.int64)
        for shard, samples in self._samples[offset].items():
            counts[shard] = len(samples)
        group.wait(group.start_all_reduce(counts))
        self._counts[offset] = counts.tolist()

    def has(self, offset: int) -> bool:
        """See `BatchSource`."""
        if not self._random.seeded:
            # By itself a script reads no sample before it asks for it.
            self._count(offset)
        elif offset not in self._counts:
            # After a step that has failed.
            return self._group is not None
        samples = sum(self._counts.get(offset, ()))
        return samples == self._batch if self._loader.drop_last else samples > 0

    def size(self, offset: int) -> int:
        """See `BatchSource`."""
        return sum(self._counts[offset])

    # -- what this member works on ------------------------------------------------------------------------------------

    def _mine(self, group: Group) -> tuple[range, int]:
        """Return the numbers of this member's portions, and how many there are in all."""
        portions = max(1, min(self._division.shards or group.world, self._most))
        return range(group.rank, portions, group.world), portions

    def portions(self, group: Group, offset: int) -> list[Portion]:
        """See `BatchSource`. A portion has whole shards; samples have the numbers that they have in the data epoch."""
        counts, (mine, portions) = self._counts[offset], self._mine(group)
        first, samples = offset * self._batch, sum(counts)
        there = [i for i in range(first, first + self._batch) if (i - first) // self._shards < counts[i % self._shards]]
        found = []
        for number in mine:
            rows = [row for row, i in enumerate(there) if i % self._shards % portions == number]
            if rows:
                found.append(Portion([there[row] for row in rows], rows, len(rows) / samples, number))
        return found or [Portion([], [], 0.0, 0)]

    def _blocks(self, group: Group, epoch: int, offset: int) -> list[Block]:
        """Return what this member reads for a batch, in the order of the batch."""
        mine, portions = self._mine(group)
        first = offset * self._batch
        place = epoch * 1_000_003 + offset
        return [
            Block(
                epoch, i % self._shards, i // self._shards, len(range(i, first + self._batch, self._shards)),
                self._random.seed, place,
            )
            for i in range(first, first + self._shards)
            if i % self._shards % portions in mine
        ]  # fmt: skip

    def _read(self, group: Group, offset: int) -> None:
        """Read this member's samples of a batch, unless they are there."""
        if offset in self._samples:
            return
        if self._reading != offset:
            epoch = self._epoch

            def blocks() -> Iterator[list[Block]]:
                return (self._blocks(group, epoch, at) for at in count(offset))

            self._readers.begin(blocks)
        self._samples[offset] = self._readers.next()
        self._reading = offset + 1

    def load(self, group: Group, cursor: Cursor) -> list[Any]:
        """See `BatchSource`."""
        offset = cursor.offset
        self._read(group, offset)
        by_shard = self._samples.pop(offset)
        data = []
        for portion in self.portions(group, offset):
            first, own = offset * self._batch, portion.indices
            samples = [by_shard[i % self._shards][(i - first) // self._shards] for i in own] or self._spare_samples()
            self._spare = self._spare or samples[: self._division.smallest]
            if self._random.seeded:
                place = cursor.epoch * 1_000_003 + offset
                seed_everything(self._random.seed, place, portion.stream + LOADING, _CPU)
            data.append(self._loader.collate_fn(samples))
        return data

    def _spare_samples(self) -> list[Any]:
        """Return samples for a member that has none of its own: some that it has had, or the first of a shard."""
        for shard in range(self._shards):
            if self._spare:
                break
            self._spare = list(islice(self._stream.open(shard, 0), self._division.smallest))
        return self._spare

    # -- how far the training is --------------------------------------------------------------------------------------

    def leave(self) -> None:
        """See `BatchSource`: what follows begins with a new data epoch."""

    def left(self, cursor: Cursor, epochs: int, size: int, goal: int | None, per_step: int) -> tuple[int, int] | None:
        """See `BatchSource`: the samples up to a goal are known only."""
        return None if goal is None else (max(0, -(-goal // max(1, size * per_step))), max(0, goal))

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: the cursor says where the training is."""


def _checked_shards(loader: DataLoader[Any], smallest: int) -> int:
    """Return the number of a stream's shards. InputError if the batches do not fit to it."""
    stream: Any = loader.dataset
    shards = stream.shards
    if type(shards) is not int or shards < 1:
        raise InputError(
            f"offcut.torch.elastic: the stream's `shards` is {shards!r}.",
            next_step="It is a whole number of at least 1, the same in every run: at least as many as members.",
        )
    batch = loader.batch_size
    if batch is None or batch < shards:
        raise InputError(
            f"offcut.torch.elastic: a stream of {shards} shards, and batches of {batch} samples.",
            next_step="Give the DataLoader a batch_size that is at least the number of shards, best a multiple of it.",
        )
    if smallest > shards * (batch // shards) or (smallest > 1 and not loader.drop_last):
        raise InputError(
            "offcut.torch.elastic: a model with BatchNorm, and a stream whose last batches may have single samples.",
            next_step="Give the DataLoader drop_last=True.",
        )
    return shards
