"""The global batches of a data epoch, as the script's own sampler draws them.

In a script by itself the sampler is asked exactly as a DataLoader would ask it. In a job every member draws the same
batches from the same random numbers: the state of the generators at the beginning of the data epoch's loop is part of
the training's state, and what a member draws inside the loop (for dropout, say) does not change what follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from offcut.errors import InputError
from offcut.torch.elastic_parts.loop_random import LoopRandom
from offcut.torch.membership.state_checksum import number

#: In a job this many batches are drawn at a time, because the random state is exchanged for each time.
_AT_A_TIME = 100


#: The types of a sampler's settings, as far as they are watched.
_SETTINGS = (int, float, str, bool)


class DataOrder:
    """Which global batch is at which offset of a data epoch. See `Stateful`.

    Args:
        loader: the script's DataLoader, with a batch sampler.
        random: the random numbers around the loops.
    """

    def __init__(self, loader: torch.utils.data.DataLoader[Any], random: LoopRandom) -> None:
        self._loader = loader
        self._random = random
        self._sampler: Iterable[Any] = loader.batch_sampler
        #: The random state with which the sampler goes on.
        self._drawing: dict[str, Any] | None = None
        #: The data epoch that this member draws batches of; a hash of the first of them.
        self._begun = -1
        self._hash = 0
        self._batches: Iterator[Any] = iter(())
        self._exhausted = True
        #: The batches that were drawn and may still be asked for; `_first` is the offset of the first.
        self._drawn: list[Any] = []
        self._first = 0
        #: What the script can set of the samplers, as it was after the last draw.
        self._settings: list[dict[str, Any]] = []

    def begin(self, epoch: int) -> None:
        """Begin to draw the batches of a data epoch, with the random numbers for it.

        Args:
            epoch: its number.
        """
        self._batches = iter(self._sampler)
        self._exhausted, self._drawn, self._first = False, [], 0
        self._begun = epoch
        self._settings = self._settings_now()
        if self._random.seeded:
            self._draw(_AT_A_TIME)
            self._random.drawn()
            self._drawing = self._random.now()
            self._hash = number(repr(self._drawn[:_AT_A_TIME]), 48)

    def state_dict(self) -> dict[str, Any]:
        return {"order": self._hash}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._begun != self._random.epoch:
            self._hash = state["order"]

    # -- the batches ------------------------------------------------------------------------------------------------

    def has(self, offset: int) -> bool:
        """Return whether the data epoch has a batch at `offset`."""
        while not self._exhausted and offset >= self._first + len(self._drawn):
            if not self._random.seeded:
                self._draw(1)
                continue
            # The script's random state is not the one with which the sampler goes on.
            here = self._random.now()
            assert self._drawing is not None
            self._random.set(self._drawing)
            self._draw(_AT_A_TIME)
            self._drawing = self._random.now()
            self._random.set(here)
        return offset < self._first + len(self._drawn)

    def _draw(self, count: int) -> None:
        for _ in range(count):
            try:
                self._drawn.append(list(next(self._batches)))
            except StopIteration:
                self._exhausted = True
                break
        self._settings = self._settings_now()

    def _settings_now(self) -> list[dict[str, Any]]:
        samplers = (self._loader.sampler, self._sampler)
        return [{k: v for k, v in vars(item).items() if type(v) in _SETTINGS} for item in samplers if _has_vars(item)]

    def check(self) -> None:
        """Check that the script has not changed its samplers since they were asked last.

        A worker that joins asks them from the beginning of the data epoch, and others have asked them ahead.

        Raises:
            InputError: it has.
        """
        for before, now in zip(self._settings, self._settings_now(), strict=True):
            for name, value in before.items():
                if name in now and now[name] != value:
                    raise InputError(
                        f"offcut.torch: the script has changed the sampler's `{name}` inside the loop over the loader, "
                        "which a worker that joins would not know.",
                        next_step="Change it between data epochs, or let the sampler count the batches that it "
                        "yields: see 'Samplers' in docs/loops-and-data.md.",
                    )

    def batch(self, offset: int) -> list[Any]:
        """Return the global batch at `offset`: what the dataset is indexed with, by sample."""
        assert self.has(offset)
        found: list[Any] = self._drawn[offset - self._first]
        return found

    def drop_before(self, offset: int) -> None:
        """Drop the batches before `offset`, which are not asked for again."""
        past = min(offset - self._first, len(self._drawn))
        if past > 0:
            del self._drawn[:past]
            self._first += past


def _has_vars(item: Any) -> bool:
    return hasattr(item, "__dict__")
