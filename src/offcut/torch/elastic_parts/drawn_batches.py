"""Global batches that a function of the script draws, in place of a DataLoader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

from offcut.torch.elastic_parts.batch_division import BatchDivision, Portion
from offcut.torch.elastic_parts.loop_random import LoopRandom
from offcut.torch.elastic_parts.rows import rows_in, rows_of
from offcut.torch.membership.process_group import Group
from offcut.torch.membership.state_checksum import number
from offcut.torch.state.cursor import Cursor

#: One in this many batches is hashed, so that members that draw differently are found.
_HASH_EVERY = 100


class _NoDataset:
    """What stands for the dataset and the sampler, which a function does not have."""

    def __getitem__(self, index: Any) -> Any:
        raise TypeError("batches that a function draws have no dataset")


class DrawnLoader(DataLoader[Any]):
    """Stands for a function among the script's DataLoaders.

    Args:
        draw: returns the next global batch.
    """

    def __init__(self, draw: Callable[[], Any]) -> None:
        super().__init__(_NoDataset(), batch_sampler=_NoDataset())
        self.draw = draw


class DrawnBatches:
    """See `BatchSource`. A data epoch is endless.

    In a job all members draw the same batches, from a random state that follows the draws alone. The random state
    before the first batch of the step is part of the training's state: a worker that joins draws from there.

    Args:
        draw: the script's function.
        division: divides the global batches among the members.
        random: the random numbers around the loops.
    """

    def __init__(self, draw: Callable[[], Any], division: BatchDivision, random: LoopRandom) -> None:
        self._draw = draw
        self._division = division
        self._random = random
        #: The data epoch in whose loop the script is or was last; the offset of the first batch of the step, the random
        #: state before it, and a hash of one of the batches before it.
        self._epoch = -1
        self._offset = 0
        self._before: dict[str, Any] | None = None
        self._hash = 0
        #: The random state of the next draw.
        self._drawing: dict[str, Any] | None = None
        #: The batches that were drawn and may still be asked for, with the random state before each and the number of
        #: rows; `_first` is the offset of the first.
        self._drawn: list[tuple[dict[str, Any] | None, Any, int]] = []
        self._first = 0

    @property
    def length(self) -> int:
        """Raise TypeError: the batches have no end."""
        raise TypeError("batches that a function draws have no len(): there is always another one")

    def begin(self, epoch: int, group: Group | None) -> None:
        """See `BatchSource`."""
        # A DataLoader draws a number at its beginning; a script with a function does not.
        self._random.begin(epoch, torch.Generator())
        if self._epoch != epoch or self._before is None:
            # The draws go on from those of the last loop.
            self._before = self._before or self._random.now()
            self._epoch, self._offset, self._hash = epoch, 0, 0
        self._first, self._drawn, self._drawing = self._offset, [], self._before

    def look(self, group: Group, cursor: Cursor, offset: int) -> None:
        """See `BatchSource`: all members draw the same batches by themselves."""
        if self._random.seeded:
            self._move_to(cursor.offset)
        else:
            self._drop_before(cursor.offset)

    def leave(self) -> None:
        """See `BatchSource`."""
        if self._random.seeded:
            self._move_to(self._first + len(self._drawn))

    def _move_to(self, offset: int) -> None:
        """Let the training's state be the one before the batch at `offset`."""
        if offset > self._offset:
            self._batch(offset - 1)
            for place, (_, batch, _) in enumerate(self._drawn[: offset - self._first], self._first):
                if place % _HASH_EVERY == 0:
                    self._hash = number(repr(batch), 48)
            self._drop_before(offset)
            self._offset, self._before = offset, self._drawn[0][0] if self._drawn else self._drawing

    def _drop_before(self, offset: int) -> None:
        past = min(offset - self._first, len(self._drawn))
        if past > 0:
            del self._drawn[:past]
            self._first += past

    def has(self, offset: int) -> bool:
        """See `BatchSource`: there is always another batch."""
        return True

    def size(self, offset: int) -> int:
        """See `BatchSource`."""
        return self._batch(offset)[1]

    def portions(self, group: Group, offset: int) -> list[Portion]:
        """See `BatchSource`. The samples have no positions in a dataset."""
        return self._division.portions([None] * self.size(offset), group.rank, group.world)

    def load(self, group: Group, cursor: Cursor) -> list[Any]:
        """See `BatchSource`."""
        batch, _ = self._batch(cursor.offset)
        return [rows_of(batch, portion.rows) for portion in self.portions(group, cursor.offset)]

    def drop(self) -> None:
        """See `BatchSource`: nothing is loaded ahead."""

    def left(self, cursor: Cursor, epochs: int, size: int, goal: int | None, per_step: int) -> tuple[int, int] | None:
        """See `BatchSource`."""
        return None

    def _batch(self, offset: int) -> tuple[Any, int]:
        while offset >= self._first + len(self._drawn):
            self._draw_next()
        return self._drawn[offset - self._first][1:]

    def _draw_next(self) -> None:
        random, before = self._random, self._drawing
        if not random.seeded or before is None:
            batch = self._draw()
            self._drawn.append((None, batch, rows_in(batch)))
            return
        # The script's random state is not the one of the draws.
        here = random.now()
        random.set(before)
        batch = self._draw()
        self._drawing = random.now()
        random.drawn()
        random.set(here)
        self._drawn.append((before, batch, rows_in(batch)))

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "offset": self._offset, "random": self._before, "order": self._hash}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        apart = self._epoch != state["epoch"] or not self._first <= state["offset"] <= self._first + len(self._drawn)
        self._epoch, self._offset, self._before, self._hash = (
            state[key] for key in ("epoch", "offset", "random", "order")
        )
        if apart:
            self._first, self._drawn, self._drawing = self._offset, [], self._before
