"""Sums the members' gradients, together with a few signals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from offcut.torch.membership.process_group import Group, Pending
from offcut.torch.membership.state_checksum import STATE_BITS
from offcut.torch.step.gradient_buckets import flats_by_kind


@dataclass(frozen=True, slots=True)
class MemberFlags:
    """What one member tells the others in a step's reduce."""

    #: It has seen a newer generation.
    switch: bool = False
    #: It wants all to begin a checkpoint.
    save: bool = False
    #: It was told to leave.
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What every member knows after a reduce."""

    #: Mean loss over the global batch.
    loss: float
    #: Some member has seen a newer generation: all switch at this boundary.
    switch: bool
    #: All begin a checkpoint at this boundary.
    save: bool
    #: All compare their states in the next step.
    check: bool
    #: Which ranks leave at this boundary.
    leaving: tuple[int, ...]
    #: By rank, what each said of the parameters that it trains, and of its state (0: nothing).
    trains: tuple[int, ...]
    states: tuple[int, ...]
    #: The weighted sum of the buffers' changes, float64 [n].
    changes: torch.Tensor
    #: There are changes of further buffers on some member.
    more_changes: bool = False
    #: All sum their gradients once more, because some member's have changed since it sent them.
    sum_again: bool = False


#: After a buffer's gradients there is room for this many numbers: the signals of 291 members.
_ROOM = 2048
#: How many numbers each member has of its own: whether it leaves, three of its loss, two hashes (see `_write`).
_OWN = 7
#: How many numbers are the sum of all members'.
_SHARED = 5
#: A float32 holds whole numbers of this many bits; a state's checksum (STATE_BITS) takes two numbers.
WHOLE_BITS = STATE_BITS // 2


class Reducer:
    """Sums gradients, which are in one flat buffer per dtype and device, so that a reduce copies nothing.

    `parameters`, each once, get views of it as their `.grad`; until the sum is there, one that takes no part in a
    backward pass has a gradient of zeros.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        self._groups = flats_by_kind(parameters, _ROOM)

    def abandon_buffers(self) -> None:
        """Make new buffers: a reduce that no member waits for may still write into the old ones when it ends."""
        self._groups = [flat.remade() for flat in self._groups]

    def zero(self) -> None:
        """Set the gradients to zero, and put them back into the flat buffers where a script has replaced them."""
        for flat in self._groups:
            flat.zero()

    def start(self, group: Group, signals: StepSignals | None = None, scale: float | None = None) -> list[Pending]:
        """Start summing the gradients over the members.

        Args:
            group: the members.
            signals: if they are not sent yet, they are sent with the gradients if there is room.
            scale: what this member's gradients are multiplied by; None: they are already weighted by its share. With 0
                this member has no gradients, because 0 times an infinite one would be NaN.

        Returns:
            The sums under way.
        """
        for flat in self._groups:
            flat.gather()
            if scale is not None:
                flat.scale(scale)
        under_way = []
        for buffer in (flat.buffer for flat in self._groups):
            end = buffer.numel() - _ROOM
            if signals is not None and not signals.sent:
                end += signals.write_into(buffer[end:])
            under_way.append(group.start_all_reduce(buffer[:end]))
        return under_way

    def drop_missing(self) -> None:
        """Remove the gradients that no member has, once the sum is there.

        Optimizers leave a parameter alone that has no gradient. One whose gradient is zero they may change: by weight
        decay, or by what they keep of earlier steps.
        """
        for flat in self._groups:
            flat.drop_missing()


class StepSignals:
    """The few numbers that members tell each other in every step's reduce, and the changes of the model's buffers.

    The numbers are appended to a gradient buffer when there is room, because a message of their own would cost every
    step a second latency. Each member writes its loss into places of its own, in as many summands as it takes to be
    exact there: adding the others' zeros changes no bit of it, and the sum over the members is the same on all of them.

    Args:
        group: the members.
        loss: this member's weighted sum of losses.
        switch: it has seen a newer generation.
        save: it wants all to begin a checkpoint.
        leaving: it was told to leave.
        changes: its weighted sum of the buffers' changes, float64 [n].
        check: it wants all to compare their states in the next step.
        more_changes: it has changes of further buffers.
        sum_again: it wants all to sum their gradients once more.
        trains: a hash of the names of the parameters that it trains; 0: not said.
        state: the checksum of its state; 0: not said.
    """

    def __init__(
        self,
        group: Group,
        *,
        loss: float,
        switch: bool,
        save: bool,
        leaving: bool,
        changes: torch.Tensor,
        check: bool = False,
        more_changes: bool = False,
        sum_again: bool = False,
        trains: int = 0,
        state: int = 0,
    ) -> None:
        self._rank = group.rank
        self._world = group.world
        self._loss = loss
        self._flags = float(switch), float(save), float(check), float(more_changes), float(sum_again)
        self._leaves = float(leaving)
        self._changes = changes
        self._numbers = trains, state >> WHOLE_BITS, state % (1 << WHOLE_BITS)
        #: The tensor in which they are summed, once they are sent.
        self._place: torch.Tensor | None = None

    @property
    def sent(self) -> bool:
        """Whether the signals are being sent."""
        return self._place is not None

    def write_into(self, room: torch.Tensor) -> int:
        """Write the signals into `room`, which is summed over the members.

        Returns:
            How many of its numbers they take; 0 if they do not fit.
        """
        votes = _SHARED + _OWN * self._world
        if self._changes.numel() or votes > room.numel() or room.dtype not in (torch.float32, torch.float64):
            return 0
        self._place = room[:votes]
        self._write(self._place)
        return votes

    def start(self, group: Group) -> Pending:
        """Send the signals in a message of their own."""
        votes = _SHARED + _OWN * self._world
        self._place = torch.zeros(votes + self._changes.numel(), dtype=torch.float64, device="cpu")
        self._write(self._place[:votes])
        self._place[votes:] = self._changes
        return group.start_all_reduce(self._place)

    def _write(self, votes: torch.Tensor) -> None:
        """Write the flags; then by rank whether it leaves, three parts of its loss, and what it trains and has."""
        numbers = [0.0] * votes.numel()
        numbers[:_SHARED] = self._flags
        at = _SHARED + _OWN * self._rank
        numbers[at : at + _OWN] = [self._leaves, *_in_summands(self._loss, votes.dtype), *map(float, self._numbers)]
        votes.copy_(torch.tensor(numbers, dtype=votes.dtype, device="cpu"))

    def outcome(self) -> StepOutcome:
        """Return what all members know, once the sum is there."""
        assert self._place is not None
        votes = _SHARED + _OWN * self._world
        numbers = self._place[:votes].tolist()
        rows = [numbers[at : at + _OWN] for at in range(_SHARED, votes, _OWN)]
        return StepOutcome(
            loss=sum(sum(row[1:4]) for row in rows),
            switch=numbers[0] > 0,
            save=numbers[1] > 0,
            check=numbers[2] > 0,
            leaving=tuple(rank for rank, row in enumerate(rows) if row[0] > 0),
            trains=tuple(int(row[4]) for row in rows),
            states=tuple((int(row[5]) << WHOLE_BITS) + int(row[6]) for row in rows),
            changes=self._place[votes:],
            more_changes=numbers[3] > 0,
            sum_again=numbers[4] > 0,
        )


def _in_summands(value: float, dtype: torch.dtype) -> list[float]:
    """Return three numbers that `dtype` (float32 or float64) holds exactly, and whose sum is `value`."""
    parts = []
    for _ in range(3):
        parts.append(torch.tensor(value, dtype=dtype, device="cpu").item())
        # The rest of a value that is not finite is 0.
        value = value - parts[-1] if math.isfinite(parts[-1]) else 0.0
    return parts
