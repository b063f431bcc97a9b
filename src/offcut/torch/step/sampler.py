"""Chooses the samples of each step: a pure function of the seed and a cursor in global samples.

Only the cursor is state. It moves when a step is applied, so after a failed step the same global batch comes again,
divided among the members of that time.
"""

from __future__ import annotations

import torch

from offcut.torch.state.cursor import Cursor


class Sampler:
    """A permutation of `samples` for every data epoch, cut into global batches.

    The last one may be smaller; with `drop_last` it is left out, so each data epoch leaves out other samples.
    """

    def __init__(self, samples: int, seed: int, *, drop_last: bool = False) -> None:
        self.samples = samples
        self.seed = seed
        self.drop_last = drop_last
        self._epoch = -1
        self._permutation = torch.empty(0, dtype=torch.int64)

    def batch(self, cursor: Cursor, size: int) -> torch.Tensor:
        """Return the global batch at `cursor`: sample indices, int64, shape [n] with n <= size, 0 at the end."""
        if cursor.epoch != self._epoch:
            generator = torch.Generator().manual_seed((self.seed * 1_000_003 + cursor.epoch) % 2**63)
            self._permutation = torch.randperm(self.samples, generator=generator)
            self._epoch = cursor.epoch
        return self._permutation[cursor.offset : cursor.offset + size]

    def after(self, cursor: Cursor, size: int) -> Cursor:
        """Return where the next batch begins."""
        offset = cursor.offset + size
        left = self.samples - offset
        return Cursor(cursor.epoch, self.samples if left < (size if self.drop_last else 1) else offset)

    def done(self, cursor: Cursor) -> bool:
        """Return whether the data epoch has no sample left."""
        return cursor.offset >= self.samples
