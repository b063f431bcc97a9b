"""Virtual shards: parts of a global batch that are the same at any size, and computed as if each were alone.

What a model does with samples together (BatchNorm's statistics) and the random numbers that it draws (dropout, noise)
belong to the shard, not to the member that computes it. So a script loops over its shards for each backward pass, and
between two passes it does what is the same for all of them, such as an update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from offcut.errors import InputError
from offcut.torch.elastic_parts.batch_division import Portion
from offcut.torch.elastic_parts.shard_gradients import ShardGradients
from offcut.torch.state.buffers import Buffers
from offcut.torch.step.batch import seed_everything

#: The most shards. The streams of random numbers are these for loading, one for what a script draws between two loops
#: over its shards, and as many again for what it draws in the loops.
MOST_SHARDS = 32_000
#: Sets the seeds of two loops over the same shards apart.
_PASS = 7_368_787


@dataclass(frozen=True, slots=True)
class Shard:
    """A virtual shard of a global batch, with its data."""

    portion: Portion
    data: Any


class Shards:
    """This member's virtual shards of a global batch, which the loop over the loader yields.

    A script loops over them once for each backward pass, and calls `optimizer.step()` after that loop:

        for shards in loader:
            optimizer.zero_grad()
            for x, y in shards:
                loss_fn(model(x), y).backward()
            optimizer.step()

    Args:
        loop: runs the loops.
        shards: the shards, at least one.
    """

    def __init__(self, loop: ShardLoop, shards: Sequence[Shard]) -> None:
        self._loop = loop
        self._shards = shards

    def __iter__(self) -> Iterator[Any]:
        """Yield the data of each shard, as the script's DataLoader would."""
        return self._loop.run(self, self._shards)

    def __len__(self) -> int:
        """Return how many of the global batch's shards this member computes."""
        return len(self._shards)

    @property
    def first(self) -> Any:
        """The data of the first shard."""
        return self._shards[0].data


class ShardLoop:
    """Runs a script's loops over its shards.

    In a loop, each shard has random numbers and buffers of its own: those with which it has ended the loop before.
    Gradients are weighted by the shard's samples.

    Args:
        buffers: the model's buffers.
        device: where the training draws random numbers besides the CPU.
    """

    def __init__(self, buffers: Buffers, device: torch.device) -> None:
        self._buffers = buffers
        self._device = device
        self._gradients = ShardGradients()
        #: What random numbers are seeded with, and how many loops over the shards of this batch have ended.
        self._seed = (0, 0)
        self.passes = 0
        self._current: Shards | None = None
        #: The shard that the script works on.
        self.portion: Portion | None = None
        #: Whether the script has left the last loop early.
        self._left_early = False
        #: By shard: the buffers after its last pass in this step, and its samples in this step.
        self._after: dict[int, list[torch.Tensor]] = {}
        self._samples: dict[int, int] = {}
        #: Whether this member has computed a shard of its own in this step.
        self.contributes = False

    def begin_step(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Begin a step.

        Args:
            parameters: what is trained in it.
        """
        self._after, self._samples, self.contributes = {}, {}, False
        self._gradients.begin_step(parameters)

    def begin_batch(self, portions: Sequence[Portion], data: Sequence[Any], seed: int, place: int) -> Shards:
        """Begin a global batch.

        Args:
            portions: this member's shards.
            data: their data.
            seed: the training's seed.
            place: the batch's place in the training.

        Returns:
            What the loop over the loader yields.
        """
        self._seed, self.passes = (seed, place), 0
        self.portion, self._left_early = None, False
        for portion in portions:
            if portion.weight > 0.0:
                self.contributes = True
                self._samples[portion.stream] = self._samples.get(portion.stream, 0) + len(portion.rows)
        self._gradients.outside(sum(portion.weight for portion in portions))
        self._draw_as(MOST_SHARDS)
        self._current = Shards(self, [Shard(*pair) for pair in zip(portions, data, strict=True)])
        return self._current

    def run(self, shards: Shards, of: Sequence[Shard]) -> Iterator[Any]:
        """Yield the data of each shard while the script works on it; see `Shards`."""
        if shards is not self._current or self.portion is not None:
            raise InputError(
                "offcut.torch: a loop over shards of an earlier batch, or inside of another loop over shards.",
                next_step="Loop over the shards that the loop over the loader has just yielded, one loop after the "
                "other.",
            )
        self._left_early = True
        self._gradients.outside(0.0)
        try:
            for shard in of:
                self._enter(shard.portion)
                yield shard.data
                self._leave(shard.portion)
            self._left_early = False
        finally:
            self.portion = None
            self._gradients.outside(sum(shard.portion.weight for shard in of))
            self.passes += 1
            self._draw_as(MOST_SHARDS)

    def _enter(self, portion: Portion) -> None:
        self.portion = portion
        self._gradients.enter(portion.weight)
        self._buffers.put(self._after.get(portion.stream))
        self._draw_as(MOST_SHARDS + 1 + portion.stream)

    def _leave(self, portion: Portion) -> None:
        self._after[portion.stream] = self._buffers.copies()

    def _draw_as(self, stream: int) -> None:
        """Seed the random numbers that the script draws next."""
        seed, place = self._seed
        seed_everything(seed + self.passes * _PASS, place, stream, self._device)

    def check_outside(self, call: str) -> None:
        """Check that the script has come to the end of its loop over the shards.

        Args:
            call: what it calls, for the error.

        Raises:
            InputError: it is in that loop, or has left it early.
        """
        if self.portion is not None:
            raise InputError(
                f"offcut.torch: {call} inside the loop over the shards, of which members have different numbers.",
                next_step="Call it after that loop.",
            )
        if self._left_early:
            raise InputError(
                "offcut.torch: the loop over the shards was left early.",
                next_step="Let it come to its end; a shard that is not computed is missing in the gradient.",
            )

    def add_buffers(self, samples: int) -> None:
        """Add the changes that this member's shards have made to the buffers, weighted by their samples in the step.

        Args:
            samples: the samples of all members in the step.
        """
        for stream, own in self._samples.items():
            if stream in self._after:
                self._buffers.add_part(own / samples, self._after[stream])

    def end(self) -> None:
        """End the training: gradients are as in plain torch again."""
        self._gradients.end()
