"""The global batches of a data epoch, as the script's own sampler draws them.

In a script by itself the sampler is asked exactly as a DataLoader would ask it. In a job every member draws the same
batches from the same random numbers: the state of the generators at the beginning of the data epoch's loop is part of
the training's state, and what a member draws inside the loop (for dropout, say) does not change what follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from offcut.torch.membership.state_checksum import number
from offcut.torch.state.cursor import Cursor
from offcut.torch.state.random_state import random_state, set_random_state

#: In a job this many batches are drawn at a time, because the random state is exchanged for each time.
_AT_A_TIME = 100
#: The offset of the end of a data epoch.
_END = 2**62


class DataOrder:
    """Which global batch belongs to which step. A cursor's offset counts batches here. See `SampleOrder`, `Stateful`.

    Args:
        loader: the script's DataLoader, with a batch sampler.
        seeded: whether random numbers depend on the place in the training alone, as in a job.
    """

    def __init__(self, loader: torch.utils.data.DataLoader[Any], *, seeded: bool) -> None:
        self._loader = loader
        self._seeded = seeded
        self._sampler: Iterable[Any] = loader.batch_sampler
        holders = (loader, loader.sampler, loader.batch_sampler)
        found = [getattr(holder, "generator", None) for holder in holders]
        #: The script's own generators, which the sampler may draw from.
        self._generators = list({id(item): item for item in found if isinstance(item, torch.Generator)}.values())
        #: Seeds the random numbers inside the loops of a job.
        self.seed = torch.initial_seed() % 2**62
        #: The data epoch in whose loop the script is or was last, and the random state before that loop.
        self._recorded = -1
        self._before: dict[str, Any] | None = None
        #: The random state after the loop, and the one with which the sampler goes on.
        self._after: dict[str, Any] | None = None
        self._drawing: dict[str, Any] | None = None
        #: The data epoch that this member draws batches of; a hash of the first of them.
        self._begun = -1
        self._hash = 0
        self._batches: Iterator[Any] = iter(())
        self._exhausted = True
        #: The batches that were drawn and may still be asked for; `_first` is the offset of the first.
        self._drawn: list[Any] = []
        self._first = 0
        #: How many batches the last step had.
        self.per_step = 1

    # -- the random numbers -----------------------------------------------------------------------------------------

    def record_start(self) -> None:
        """Note the random state with which the script comes to its training; other members may replace it."""
        if self._before is None:
            self._before = random_state(self._generators)

    def share_start(self) -> None:
        """Set the generators to what all members begin with, once this worker is one of them."""
        if self._seeded and self._before is not None:
            set_random_state(self._before, self._generators)

    def begin(self, epoch: int) -> None:
        """Begin to draw the batches of a data epoch.

        Args:
            epoch: its number.
        """
        if self._seeded:
            if self._recorded == epoch and self._before is not None:
                set_random_state(self._before, self._generators)
            else:
                self._recorded, self._before = epoch, random_state(self._generators)
            # What a DataLoader draws for its processes, before it asks its sampler.
            torch.empty((), dtype=torch.int64).random_(generator=self._loader.generator)
        self._batches = iter(self._sampler)
        self._exhausted, self._drawn, self._first = False, [], 0
        self._begun = epoch
        if self._seeded:
            self._draw(_AT_A_TIME)
            self._after = self._drawing = random_state(self._generators)
            self._hash = number(repr(self._drawn[:_AT_A_TIME]), 48)

    def end_loop(self) -> None:
        """Set the generators to what follows the loop: the same on all members."""
        if self._seeded and self._after is not None:
            set_random_state(self._after, self._generators)
            self._after = None

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "epoch": self._recorded, "random": self._before, "order": self._hash}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seed, self._recorded, self._before = state["seed"], state["epoch"], state["random"]
        if self._begun != self._recorded:
            self._hash = state["order"]

    # -- the batches ------------------------------------------------------------------------------------------------

    def has(self, offset: int) -> bool:
        """Return whether the data epoch has a batch at `offset`."""
        while not self._exhausted and offset >= self._first + len(self._drawn):
            if not self._seeded:
                self._draw(1)
                continue
            # The script's random state is not the one with which the sampler goes on.
            here = random_state(self._generators)
            assert self._drawing is not None
            set_random_state(self._drawing, self._generators)
            self._draw(_AT_A_TIME)
            self._drawing = random_state(self._generators)
            set_random_state(here, self._generators)
        return offset < self._first + len(self._drawn)

    def _draw(self, count: int) -> None:
        for _ in range(count):
            try:
                self._drawn.append(list(next(self._batches)))
            except StopIteration:
                self._exhausted = True
                return

    def batch(self, offset: int) -> list[Any]:
        """Return the global batch at `offset`: what the dataset is indexed with, by sample."""
        assert self.has(offset)
        found: list[Any] = self._drawn[offset - self._first]
        return found

    def done(self, cursor: Cursor) -> bool:
        """Return whether the data epoch has no batch left at the cursor; earlier batches are not asked for again."""
        if cursor.offset >= _END:
            return True
        past = min(cursor.offset - self._first, len(self._drawn))
        if past > 0:
            del self._drawn[:past]
            self._first += past
        return not self.has(cursor.offset)

    def end(self, epoch: int) -> Cursor:
        """Return the cursor at the end of a data epoch."""
        return Cursor(epoch, _END)

    @property
    def length(self) -> int:
        """How many batches a data epoch has. TypeError if the sampler does not know."""
        return len(self._loader)

    def left(self, cursor: Cursor, epochs: int, size: int, goal: int | None) -> tuple[int, int] | None:
        """Return how many steps and samples are left if steps go on like the last one; see `SampleOrder`."""
        try:
            batches, samples = len(self._loader), len(self._loader.sampler)
        except TypeError:
            return None
        if not self._loader.batch_size:
            return None
        if self._loader.drop_last:
            samples = batches * size
        if cursor.epoch >= epochs:
            return 0, 0
        later, here = epochs - cursor.epoch - 1, max(0, batches - cursor.offset)
        in_steps = -(-here // self.per_step) + later * -(-batches // self.per_step)
        in_samples = max(0, samples - cursor.offset * size) + later * samples
        if goal is not None and goal < in_samples:
            in_steps, in_samples = max(0, -(-goal // (size * self.per_step))), max(0, goal)
        return in_steps, in_samples
