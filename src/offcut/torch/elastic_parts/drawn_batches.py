"""Global batches that a function of the script draws, in place of a DataLoader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader

from offcut.errors import InputError
from offcut.torch.elastic_parts.batch_division import BatchDivision, Portion
from offcut.torch.elastic_parts.loop_random import LoopRandom
from offcut.torch.membership.process_group import Group
from offcut.torch.membership.state_checksum import number
from offcut.torch.state.cursor import Cursor
from offcut.torch.state.training_state import map_tensors

#: A worker that joins draws at most about this many batches again, to come to the next one.
_ANCHOR_EVERY = 100


def rows_in(batch: Any) -> int:
    """Return the number of rows of a batch.

    Args:
        batch: what the script's function has returned: tensors, or tuples, lists and dicts of them, whose first
            dimension counts the rows.

    Raises:
        InputError: it has no tensor with rows, or its tensors have different numbers of them.
    """
    lengths: set[int] = set()

    def count(tensor: torch.Tensor) -> torch.Tensor:
        lengths.add(len(tensor) if tensor.dim() else 0)
        return tensor

    map_tensors(batch, count)
    if len(lengths) != 1 or 0 in lengths:
        several = "tensors with different numbers of rows" if len(lengths) > 1 else "no tensor with rows"
        raise InputError(
            f"offcut.torch.elastic: the function that draws batches returned {several}.",
            next_step="Let it return tensors, or a tuple or dict of them, with one row for each sample of the global "
            "batch.",
        )
    return lengths.pop()


def rows_of(batch: Any, rows: list[int]) -> Any:
    """Return some rows of a batch, in the same containers; the batch's own tensors if they are all of it."""
    index = torch.tensor(rows, device="cpu")

    def choose(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if rows == list(range(len(tensor))) else tensor[index.to(tensor.device)]

    return map_tensors(batch, choose)


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

    In a job all members draw the same batches, from a random state that follows the draws alone. Part of the training's
    state is the random state before one of the last batches, the anchor, from which a worker that joins draws.

    Args:
        draw: the script's function.
        division: divides the global batches among the members.
        random: the random numbers around the loops.
    """

    def __init__(self, draw: Callable[[], Any], division: BatchDivision, random: LoopRandom) -> None:
        self._draw = draw
        self._division = division
        self._random = random
        #: The data epoch in whose loop the script is or was last; the offset of the anchor in it, the random state
        #: before that batch, and a hash of the batch once it is drawn.
        self._epoch = -1
        self._anchor = 0
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
            self._epoch, self._anchor, self._hash, self._before = epoch, 0, 0, self._random.now()
        self._first, self._drawn, self._drawing = self._anchor, [], self._before

    def look(self, group: Group, cursor: Cursor, offset: int) -> None:
        """See `BatchSource`: all members draw the same batches by themselves."""
        if self._random.seeded and cursor.offset - self._anchor >= _ANCHOR_EVERY:
            self._batch(cursor.offset - 1)
            place = cursor.offset - self._first
            self._anchor, self._hash = cursor.offset, 0
            self._before = self._drawn[place][0] if place < len(self._drawn) else self._drawing
        past = min(cursor.offset - self._first, len(self._drawn))
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
        if self._first + len(self._drawn) == self._anchor:
            self._hash = number(repr(batch), 48)
        self._drawn.append((before, batch, rows_in(batch)))

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "anchor": self._anchor, "random": self._before, "order": self._hash}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        same = (self._epoch, self._anchor) == (state["epoch"], state["anchor"])
        self._epoch, self._anchor, self._before = state["epoch"], state["anchor"], state["random"]
        # What this member has drawn itself is not forgotten, so that members that draw differently are found.
        if not same or self._hash == 0:
            self._hash = state["order"]
