"""The sum of all members' gradients, and a few numbers that ride along with it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from offcut.torch.group import Group, Pending


@dataclass(frozen=True, slots=True)
class Tally:
    """What every member knows after a reduce."""

    #: Mean loss over the global batch.
    loss: float
    #: Some member has seen a newer epoch: all switch at this boundary.
    switch: bool
    #: All begin a checkpoint at this boundary.
    save: bool
    #: Which ranks leave at this boundary.
    leaving: tuple[int, ...]
    #: The weighted sum of the buffers' changes, float64 [n].
    changes: torch.Tensor


#: Behind a buffer's gradients there is room for so many numbers that ride along: those of 255 members.
_ROOM = 1024

#: A flat buffer, and the parameters with their views of it.
_Flat = tuple[torch.Tensor, list[tuple[torch.nn.Parameter, torch.Tensor]]]


def _flatten(parameters: list[torch.nn.Parameter], dtype: torch.dtype, device: torch.device) -> _Flat:
    # Touched here, not in the first step: a joiner makes it before the others wait for it.
    flat = torch.empty(sum(p.numel() for p in parameters) + _ROOM, dtype=dtype, device=device).zero_()
    *parts, _ = flat.split([*(p.numel() for p in parameters), _ROOM])
    return flat, [(p, part.view_as(p)) for p, part in zip(parameters, parts, strict=True)]


class Reducer:
    """Gradients live in one flat buffer per dtype and device, so that a reduce copies nothing.

    `parameters` get views of it as their `.grad`; one that takes no part in a backward pass has a gradient of zeros.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        unique = {id(p): p for p in parameters if p.requires_grad}
        self._groups: list[_Flat] = []
        by_kind: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
        for parameter in unique.values():
            by_kind.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        for (dtype, device), members in by_kind.items():
            self._groups.append(_flatten(members, dtype, device))

    def abandon_buffers(self) -> None:
        """Leave the buffers to a reduce that was walked away from: it may still write into them when it ends."""
        self._groups = [
            _flatten([parameter for parameter, _ in views], flat.dtype, flat.device) for flat, views in self._groups
        ]

    def zero(self) -> None:
        """Gradients to zero, and back into the flat buffers wherever a script has replaced them."""
        for flat, views in self._groups:
            flat.zero_()
            for parameter, view in views:
                parameter.grad = view

    def start(self, group: Group, rider: Rider | None = None) -> list[Pending]:
        """Start summing the gradients over the members; they are already weighted by each one's share.

        A `rider` that has no seat yet gets one if there is room for it.
        """
        for _, views in self._groups:
            for parameter, view in views:
                grad = parameter.grad
                if grad is None:
                    view.zero_()
                elif grad.data_ptr() != view.data_ptr():
                    view.copy_(grad)
                parameter.grad = view
        under_way = []
        for flat, _ in self._groups:
            end = flat.numel() - _ROOM
            if rider is not None and not rider.seated:
                end += rider.take_seat(flat[end:])
            under_way.append(group.start_all_reduce(flat[:end]))
        return under_way


class Rider:
    """The few numbers that ride on every step's reduce, and the changes of the model's buffers.

    A message of its own would cost every step a second latency, so it takes a seat at the end of a gradient buffer
    where it can. Each member writes its loss into places of its own, in as many parts as it takes to be exact there:
    adding the others' zeros changes no bit of it, and the sum over the members is the same on all of them.
    """

    def __init__(
        self, group: Group, *, loss: float, switch: bool, save: bool, leaving: bool, changes: torch.Tensor
    ) -> None:
        self._rank = group.rank
        self._world = group.world
        self._loss = loss
        self._flags = float(switch), float(save), float(leaving)
        self._changes = changes
        #: Where it is summed up, once it is on its way.
        self._seat: torch.Tensor | None = None

    @property
    def seated(self) -> bool:
        """Whether it is on its way."""
        return self._seat is not None

    def take_seat(self, room: torch.Tensor) -> int:
        """Ride in `room`, which is summed over the members: how many of its numbers are taken, 0 if it cannot."""
        votes = 2 + 4 * self._world
        if self._changes.numel() or votes > room.numel() or room.dtype not in (torch.float32, torch.float64):
            return 0
        self._seat = room[:votes]
        self._write(self._seat)
        return votes

    def start(self, group: Group) -> Pending:
        """Go alone."""
        votes = 2 + 4 * self._world
        self._seat = torch.zeros(votes + self._changes.numel(), dtype=torch.float64)
        self._write(self._seat[:votes])
        self._seat[votes:] = self._changes
        return group.start_all_reduce(self._seat)

    def _write(self, votes: torch.Tensor) -> None:
        """Switch and save; by rank who leaves; by rank three parts of the loss."""
        numbers = [0.0] * votes.numel()
        numbers[0], numbers[1], numbers[2 + self._rank] = self._flags
        at = 2 + self._world + 3 * self._rank
        numbers[at : at + 3] = _in_parts(self._loss, votes.dtype)
        votes.copy_(torch.tensor(numbers, dtype=votes.dtype))

    def tally(self) -> Tally:
        """What it says once the sum is there."""
        assert self._seat is not None
        world, votes = self._world, 2 + 4 * self._world
        numbers = self._seat[:votes].tolist()
        return Tally(
            loss=sum(sum(numbers[at : at + 3]) for at in range(2 + world, votes, 3)),
            switch=numbers[0] > 0,
            save=numbers[1] > 0,
            leaving=tuple(rank for rank in range(world) if numbers[2 + rank] > 0),
            changes=self._seat[votes:],
        )


def _in_parts(value: float, dtype: torch.dtype) -> list[float]:
    """Three numbers that `dtype` (float32 or float64) holds exactly, and whose sum is `value`."""
    parts = []
    for _ in range(3):
        parts.append(torch.tensor(value, dtype=dtype).item())
        # Nothing is left of what is not finite.
        value = value - parts[-1] if math.isfinite(parts[-1]) else 0.0
    return parts
