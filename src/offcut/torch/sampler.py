"""Which samples belong to which step: a pure function of the seed and a cursor in global samples.

Only the cursor is state. It moves when a step is applied, so after a failed step the same global batch comes again,
divided among whoever is a member then.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Cursor:
    """The next sample: data epoch, and how many of its samples are done."""

    epoch: int = 0
    offset: int = 0


class Sampler:
    """A permutation of `samples` for every data epoch, cut into global batches; the last one may be smaller."""

    def __init__(self, samples: int, global_batch: int, seed: int) -> None:
        self.samples = samples
        self.global_batch = global_batch
        self.seed = seed
        self._epoch = -1
        self._permutation = torch.empty(0, dtype=torch.int64)

    def batch(self, cursor: Cursor) -> torch.Tensor:
        """The global batch at `cursor`: sample indices, int64, shape [n] with n <= global_batch, 0 at the end."""
        if cursor.epoch != self._epoch:
            generator = torch.Generator().manual_seed((self.seed * 1_000_003 + cursor.epoch) % 2**63)
            self._permutation = torch.randperm(self.samples, generator=generator)
            self._epoch = cursor.epoch
        return self._permutation[cursor.offset : cursor.offset + self.global_batch]

    def after(self, cursor: Cursor) -> Cursor:
        return Cursor(cursor.epoch, min(self.samples, cursor.offset + self.global_batch))

    def done(self, cursor: Cursor) -> bool:
        """Whether the data epoch has no sample left."""
        return cursor.offset >= self.samples


def share(batch: torch.Tensor, rank: int, world: int) -> torch.Tensor:
    """What `rank` of `world` works on of a global batch: every world-th sample, so sizes differ by 1 at most."""
    return batch[rank::world]
