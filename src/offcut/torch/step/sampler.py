"""Chooses the samples of each step: a pure function of the seed and a cursor in global samples.

Only the cursor is state. It moves when a step is applied, so after a failed step the same global batch comes again,
divided among the members of that time.
"""

from __future__ import annotations

import torch

from offcut.torch.state.cursor import Cursor
from offcut.torch.step.keyed_permutation import KeyedPermutation

#: A member that joins draws the order of more samples while the others wait for it: 10 million take 0.2 s and 80 MB.
DRAWN_AT_ONCE = 10_000_000


class Sampler:
    """A permutation of `samples` for every data epoch, cut into global batches.

    The last one may be smaller; with `drop_last` it is left out, so each data epoch leaves out other samples. Up to
    `DRAWN_AT_ONCE` samples it is `torch.randperm`'s, beyond it is computed place by place and takes no memory.
    """

    def __init__(self, samples: int, seed: int, *, drop_last: bool = False) -> None:
        self.samples = samples
        self.seed = seed
        self.drop_last = drop_last
        #: The last two that were asked for, by data epoch: batches of the next one are loaded ahead.
        self._orders: dict[int, torch.Tensor | KeyedPermutation] = {}

    def batch(self, cursor: Cursor, size: int) -> torch.Tensor:
        """Return the global batch at `cursor`: sample indices, int64, shape [n] with n <= size, 0 at the end."""
        return self._order(cursor.epoch)[cursor.offset : cursor.offset + size]

    def _order(self, epoch: int) -> torch.Tensor | KeyedPermutation:
        found = self._orders.get(epoch)
        if found is None:
            key = (self.seed * 1_000_003 + epoch) % 2**63
            if self.samples > DRAWN_AT_ONCE:
                found = KeyedPermutation(self.samples, key)
            else:
                found = torch.randperm(self.samples, generator=torch.Generator().manual_seed(key), device="cpu")
            self._orders = {**dict(list(self._orders.items())[-1:]), epoch: found}
        return found

    def after(self, cursor: Cursor, size: int) -> Cursor:
        """Return where the next batch begins."""
        offset = cursor.offset + size
        left = self.samples - offset
        return Cursor(cursor.epoch, self.samples if left < (size if self.drop_last else 1) else offset)

    def left(self, cursor: Cursor, epochs: int, size: int, goal: int | None = None) -> tuple[int, int]:
        """Return how many steps and samples are left.

        Args:
            cursor: where the next batch begins.
            epochs: the data epochs of the whole training.
            size: samples in a whole global batch.
            goal: the training ends as soon as it has trained this many more samples, if that is earlier; None: it does
                not.
        """
        if cursor.epoch >= epochs or (goal is not None and goal <= 0):
            return 0, 0
        here = self._count(max(0, self.samples - cursor.offset), size)
        epoch, later = self._count(self.samples, size), epochs - cursor.epoch - 1
        steps, samples = here[0] + later * epoch[0], here[1] + later * epoch[1]
        if goal is None or goal > samples:
            return steps, samples
        if goal <= here[1]:
            steps = -(-goal // size)
            return steps, min(steps * size, here[1])
        whole, rest = divmod(goal - here[1] - 1, epoch[1])
        last = -(-(rest + 1) // size)
        return here[0] + whole * epoch[0] + last, here[1] + whole * epoch[1] + min(last * size, epoch[1])

    def _count(self, samples: int, size: int) -> tuple[int, int]:
        """Return how many steps these samples of a data epoch make, and how many samples those use."""
        if self.drop_last:
            return samples // size, samples - samples % size
        return -(-samples // size), samples

    def done(self, cursor: Cursor) -> bool:
        """Return whether the data epoch has no sample left."""
        return cursor.offset >= self.samples

    def end(self, epoch: int) -> Cursor:
        """Return the cursor at the end of a data epoch."""
        return Cursor(epoch, self.samples)
