"""The random numbers around the loops over a loader: in a job they are the same on all members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from offcut.torch.state.random_state import random_state, set_random_state


class LoopRandom:
    """Sets the random generators before and after each loop over a loader. Part of the training's state.

    In a script by itself it does nothing, and the generators are as in plain PyTorch. In a job the state at the
    beginning of a data epoch's loop is that of the member that began the training, and what a member draws inside the
    loop (for dropout, say) does not change what follows.

    Args:
        loaders: the script's DataLoaders, whose samplers may have generators of their own.
        seeded: whether there are, or may be, other members, or what is drawn shall not depend on there being any.
    """

    def __init__(self, loaders: Sequence[DataLoader[Any]], *, seeded: bool) -> None:
        self.seeded = seeded
        holders = [holder for loader in loaders for holder in (loader, loader.sampler, loader.batch_sampler)]
        # A loader that was given a batch sampler does not know the sampler in it.
        holders += [getattr(loader.batch_sampler, "sampler", None) for loader in loaders]
        found = [getattr(holder, "generator", None) for holder in holders]
        #: The script's own generators, which the samplers may draw from.
        self._generators = list({id(item): item for item in found if isinstance(item, torch.Generator)}.values())
        #: Seeds the random numbers inside the loops of a job.
        self.seed = torch.initial_seed() % 2**62
        #: The data epoch in whose loop the script is or was last, and the random state before that loop.
        self.epoch = -1
        self._before: dict[str, Any] | None = None
        #: The random state after the loop.
        self._after: dict[str, Any] | None = None
        #: The random state with which numbers for the rows of global batches go on, once some were drawn in the loop.
        self._rows: dict[str, Any] | None = None

    def record_start(self) -> None:
        """Note the random state with which the script comes to its training; other members may replace it."""
        if self._before is None:
            self._before = self.now()

    def share_start(self) -> None:
        """Set the generators to what all members begin with, once this worker is one of them."""
        if self.seeded and self._before is not None:
            self.set(self._before)

    def begin(self, epoch: int, generator: torch.Generator | None) -> None:
        """Set the generators for the loop of a data epoch.

        Args:
            epoch: its number.
            generator: the loader's own generator.
        """
        if not self.seeded:
            return
        if self.epoch == epoch and self._before is not None:
            self.set(self._before)
        else:
            self.epoch, self._before, self._rows = epoch, self.now(), None
        # What a DataLoader draws for its processes, before it asks its sampler.
        torch.empty((), dtype=torch.int64).random_(generator=generator)
        self._after = self.now()

    def drawn(self) -> None:
        """Note that the batches of the loop have been drawn, as a DataLoader draws them before the loop goes on."""
        self._after = self.now()

    def end_loop(self) -> None:
        """Set the generators to what follows the loop: the same on all members."""
        if self.seeded and self._after is not None:
            self.set(self._rows or self._after)
            self._after = None

    def draw_rows(self, draw: Callable[[], Any]) -> Any:
        """Return what `draw` draws for all rows of a global batch: in a job the same on all members.

        Args:
            draw: draws numbers. In a job it goes on from the last such call.
        """
        before = self._rows or self._after
        if not self.seeded or before is None:
            return draw()
        here = self.now()
        self.set(before)
        drawn = draw()
        self._rows = self.now()
        self.set(here)
        return drawn

    def now(self) -> dict[str, Any]:
        """Return the state of the generators."""
        return random_state(self._generators)

    def set(self, state: dict[str, Any]) -> None:
        """Set the generators to a state that `now` returned."""
        set_random_state(state, self._generators)

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "epoch": self.epoch, "random": self._before, "rows": self._rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seed, self.epoch, self._before = state["seed"], state["epoch"], state["random"]
        self._rows = state.get("rows")
