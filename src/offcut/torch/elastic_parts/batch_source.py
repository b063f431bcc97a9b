"""The interface between the step of a script's own loop and the loaders that its batches come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from offcut.torch.elastic_parts.batch_division import Portion
from offcut.torch.membership.process_group import Group
from offcut.torch.state.cursor import Cursor

#: The offset of the end of a data epoch.
_END = 2**62


class BatchSource(Protocol):
    """The global batches of one loader, by data epoch and offset, and this member's portions of them."""

    @property
    def length(self) -> int:
        """How many batches a data epoch has. TypeError if that is not known."""
        ...

    def begin(self, epoch: int, group: Group | None) -> None:
        """Begin the loop over the batches of a data epoch, with the random numbers for it.

        Args:
            epoch: its number.
            group: the members; None between two generations.
        """
        ...

    def look(self, group: Group, cursor: Cursor, offset: int) -> None:
        """Find out, together with the other members, whether there is a batch. All call it before each batch of a step.

        Args:
            group: the members.
            cursor: the first batch of the step; those before it are not asked for again.
            offset: the batch in question.

        Raises:
            Abandoned: the generation broke.
        """
        ...

    def has(self, offset: int) -> bool:
        """Return whether the data epoch has a batch at `offset`: that of the last `look`, or the next one."""
        ...

    def size(self, offset: int) -> int:
        """Return how many samples the global batch at `offset` has."""
        ...

    def portions(self, group: Group, offset: int) -> list[Portion]:
        """Return what this member works on of the global batch at `offset`, at least one portion."""
        ...

    def load(self, group: Group, cursor: Cursor) -> list[Any]:
        """Return the data of each of these portions of the batch at `cursor`, and load ahead what follows."""
        ...

    def drop(self) -> None:
        """Drop what was loaded ahead."""
        ...

    def leave(self) -> None:
        """Note that the script leaves the loop, on all members at the same batch."""
        ...

    def left(self, cursor: Cursor, epochs: int, size: int, goal: int | None, per_step: int) -> tuple[int, int] | None:
        """Return how many steps and samples are left; None: not known. See `SampleOrder`.

        Args:
            cursor: the next batch.
            epochs: the number of data epochs of the whole training.
            size: the samples of a step's batches.
            goal: the samples after which the training ends in any case.
            per_step: how many batches a step has.
        """
        ...

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


class CurrentSource:
    """The one of the script's loaders over which it loops, or looped last. See `SampleOrder`.

    Args:
        source: the batches of the first loader.
        group: returns the members.
    """

    def __init__(self, source: BatchSource, group: Callable[[], Group]) -> None:
        self.source = source
        self._group = group
        #: How many batches the last step had.
        self.per_step = 1

    def done(self, cursor: Cursor) -> bool:
        """See `SampleOrder`. Raises Abandoned."""
        if cursor.offset >= _END:
            return True
        self.source.look(self._group(), cursor, cursor.offset)
        return not self.source.has(cursor.offset)

    def end(self, epoch: int) -> Cursor:
        """See `SampleOrder`."""
        self.source.leave()
        return Cursor(epoch, _END)

    def left(self, cursor: Cursor, epochs: int, size: int, goal: int | None) -> tuple[int, int] | None:
        """See `SampleOrder`."""
        return self.source.left(cursor, epochs, size, goal, self.per_step)


def sample_numbers(portions: Sequence[Portion]) -> torch.Tensor:
    """Return the samples of portions that count, for the records; none if they are not whole numbers."""
    own = [index for portion in portions if portion.weight for index in portion.indices]
    known = all(type(index) is int for index in own)
    return torch.tensor(own if known else [], dtype=torch.int64, device="cpu")
