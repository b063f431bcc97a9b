"""Decides how large a global batch is, and which member works on which part of it.

A *part* is what one forward and backward pass works on. Fixed global batch (the default): each member works on its
share, in several parts if it is larger than `max_local_batch`. Virtual shards: the global batch is cut into the same
shards whatever the size, a member works on its shards one after another, and each shard has its own stream of random
numbers and its own batch statistics; so dropout and BatchNorm do not see the size. Fixed batch per rank (weak scaling,
as in BFTrainer): the global batch grows with the size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from offcut.errors import InputError


@dataclass(frozen=True, slots=True)
class Part:
    """Samples for one forward and backward pass."""

    #: Positions in the dataset, int64.
    indices: torch.Tensor
    #: The part's share of the global batch; 0 for a member without samples of its own.
    weight: float
    #: The stream of random numbers that it uses.
    stream: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy:
    """The batch policy.

    Exactly one of `global_batch` and `batch_per_rank` is given; counts are at least 1. InputError.
    """

    global_batch: int | None = None
    batch_per_rank: int | None = None
    max_local_batch: int | None = None
    virtual_shards: int | None = None
    #: The fewest samples that a member works on, unless the whole batch has fewer; further members have none.
    min_local_batch: int = 1

    def __post_init__(self) -> None:
        for name in ("global_batch", "batch_per_rank", "max_local_batch", "virtual_shards", "min_local_batch"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise InputError(f"Session: {name} is {value!r}.", next_step="It must be a whole number, at least 1.")
        if (self.global_batch is None) == (self.batch_per_rank is None):
            raise InputError(
                "Session: give either global_batch or batch_per_rank.",
                next_step="global_batch=N keeps the training independent of the size; see the docs on batch policies.",
            )
        if self.virtual_shards is not None and self.global_batch is None:
            raise InputError(
                "Session: virtual_shards needs a fixed global_batch.", next_step="Give global_batch=N instead."
            )

    def size(self, world: int) -> int:
        """Return the number of samples in a whole global batch of `world` members."""
        return self.global_batch if self.global_batch is not None else (self.batch_per_rank or 0) * world

    def share(self, batch: torch.Tensor, rank: int, world: int) -> torch.Tensor:
        """Return what `rank` of `world` works on of a global batch, in the order of its parts; may be empty."""
        units = self._units(batch, rank, world)
        return torch.cat([unit for _, unit in units]) if units else batch[:0]

    def parts(self, batch: torch.Tensor, rank: int, world: int) -> list[Part]:
        """Return this member's parts, at least one: without samples of its own it works on the first's at weight 0."""
        units = self._units(batch, rank, world)
        if not units:
            stream, first = self._units(batch, 0, world)[0]
            return [Part(first[: self.max_local_batch], 0.0, stream)]
        parts = []
        for stream, unit in units:
            pieces = 1 if self.max_local_batch is None else -(-len(unit) // self.max_local_batch)
            # The streams of a unit's further pieces must not be those of other units, nor of other steps: a step has
            # 65,537 numbers, see `seed_everything`.
            parts += [
                Part(piece, len(piece) / len(batch), stream + (i << 46))
                for i, piece in enumerate(torch.tensor_split(unit, pieces))
            ]
        return parts

    def _units(self, batch: torch.Tensor, rank: int, world: int) -> list[tuple[int, torch.Tensor]]:
        """Return every n-th sample for n members, so that shares differ by 1 at most; or every world-th shard.

        None is empty.

        n is the world, or as many as can have `min_local_batch` samples each.
        """
        if self.virtual_shards is None:
            members = max(1, min(world, len(batch) // self.min_local_batch))
            units = [(rank, batch[rank::members])] if rank < members else []
        else:
            shards = self.virtual_shards
            units = [(shard, batch[shard::shards]) for shard in range(rank, shards, world)]
        return [(stream, unit) for stream, unit in units if len(unit)]


def smallest_share(model: torch.nn.Module) -> int:
    """Return 2 if the model has BatchNorm layers, which refuse a single value per channel in training, otherwise 1."""
    return 2 if any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in model.modules()) else 1
