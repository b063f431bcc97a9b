"""The global batches of a loader whose dataset can be indexed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from offcut.torch.elastic_parts.batch_division import BatchDivision, Portion
from offcut.torch.elastic_parts.data_order import DataOrder
from offcut.torch.elastic_parts.loop_random import LoopRandom
from offcut.torch.membership.process_group import Group
from offcut.torch.state.cursor import Cursor
from offcut.torch.step.share_loader import Share, ShareLoader


class IndexedBatches:
    """See `BatchSource`.

    Args:
        loader: the script's DataLoader, with a batch sampler.
        division: divides the global batches among the members.
        random: the random numbers around the loops.
    """

    def __init__(self, loader: DataLoader[Any], division: BatchDivision, random: LoopRandom) -> None:
        self._loader = loader
        self._division = division
        self._random = random
        self._order = DataOrder(loader, random)
        self._shares = ShareLoader(loader, seeded=random.seeded)
        #: Where the batches that were loaded ahead begin: generation, data epoch, offset.
        self._loading: tuple[int, int, int] | None = None

    @property
    def length(self) -> int:
        """See `BatchSource`."""
        return len(self._loader)

    def begin(self, epoch: int, group: Group | None) -> None:
        """See `BatchSource`."""
        self._random.begin(epoch, self._loader.generator)
        self._order.begin(epoch)
        if not self._random.seeded and group is not None:
            # Before the sampler is asked, as in a DataLoader.
            self._load_from(group, Cursor(epoch, 0))

    def look(self, group: Group, cursor: Cursor, offset: int) -> None:
        """See `BatchSource`: all members draw the same batches by themselves."""
        self._order.check()
        self._order.drop_before(cursor.offset)

    def has(self, offset: int) -> bool:
        """See `BatchSource`."""
        return self._order.has(offset)

    def size(self, offset: int) -> int:
        """See `BatchSource`."""
        return len(self._order.batch(offset))

    def portions(self, group: Group, offset: int) -> list[Portion]:
        """See `BatchSource`."""
        return self._division.portions(self._order.batch(offset), group.rank, group.world)

    def load(self, group: Group, cursor: Cursor) -> list[Any]:
        """See `BatchSource`."""
        generation = group.membership.generation
        if self._loading != (generation, cursor.epoch, cursor.offset):
            self._load_from(group, cursor)
        data = [self._shares.next() for _ in self.portions(group, cursor.offset)]
        self._loading = generation, cursor.epoch, cursor.offset + 1
        return data

    def _load_from(self, group: Group, cursor: Cursor) -> None:
        self._shares.begin(self._coming(group, cursor))
        self._loading = group.membership.generation, cursor.epoch, cursor.offset

    def _coming(self, group: Group, cursor: Cursor) -> Iterator[list[Any]]:
        offset = cursor.offset
        while self._order.has(offset):
            for portion in self.portions(group, offset):
                share = Share(portion.indices)
                share.seeded_by = (self._random.seed, cursor.epoch * 1_000_003 + offset, portion.stream)
                yield share if self._random.seeded else list(share)
            offset += 1

    def drop(self) -> None:
        """See `BatchSource`."""
        self._shares.drop()
        self._loading = None

    def leave(self) -> None:
        """See `BatchSource`: what follows begins with a new data epoch."""

    def left(self, cursor: Cursor, epochs: int, size: int, goal: int | None, per_step: int) -> tuple[int, int] | None:
        """See `BatchSource`: as if steps went on like the last one."""
        loader = self._loader
        try:
            batches, samples = len(loader), len(loader.sampler)
        except TypeError:
            return None
        if not loader.batch_size:
            return None
        if loader.drop_last:
            samples = batches * size
        if cursor.epoch >= epochs:
            return 0, 0
        later, here = epochs - cursor.epoch - 1, max(0, batches - cursor.offset)
        in_steps = -(-here // per_step) + later * -(-batches // per_step)
        in_samples = max(0, samples - cursor.offset * size) + later * samples
        if goal is not None and goal < in_samples:
            in_steps, in_samples = max(0, -(-goal // (size * per_step))), max(0, goal)
        return in_steps, in_samples

    def state_dict(self) -> dict[str, Any]:
        return self._order.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._order.load_state_dict(state)
