"""The sum of all members' gradients, and a few numbers that ride along with it."""

from __future__ import annotations

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


#: A flat buffer, and the parameters with their views of it.
_Flat = tuple[torch.Tensor, list[tuple[torch.nn.Parameter, torch.Tensor]]]


def _flatten(parameters: list[torch.nn.Parameter], dtype: torch.dtype, device: torch.device) -> _Flat:
    flat = torch.zeros(sum(p.numel() for p in parameters), dtype=dtype, device=device)
    parts = flat.split([p.numel() for p in parameters])
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

    def start(self, group: Group) -> list[Pending]:
        """Start summing the gradients over the members; they are already weighted by each one's share."""
        for _, views in self._groups:
            for parameter, view in views:
                grad = parameter.grad
                if grad is None:
                    view.zero_()
                elif grad.data_ptr() != view.data_ptr():
                    view.copy_(grad)
                parameter.grad = view
        return [group.start_all_reduce(flat) for flat, _ in self._groups]


class Rider:
    """The few numbers that ride on every step's reduce, and the changes of the model's buffers."""

    def __init__(
        self, group: Group, *, loss: float, switch: bool, save: bool, leaving: bool, changes: torch.Tensor
    ) -> None:
        self._world = group.world
        self._numbers = torch.zeros(3 + group.world + changes.numel(), dtype=torch.float64)
        self._numbers[0] = loss
        self._numbers[1] = float(switch)
        self._numbers[2] = float(save)
        self._numbers[3 + group.rank] = float(leaving)
        self._numbers[3 + group.world :] = changes

    def start(self, group: Group) -> Pending:
        return group.start_all_reduce(self._numbers)

    def tally(self) -> Tally:
        """What it says once the sum is there."""
        end = 3 + self._world
        numbers = self._numbers[:end].tolist()
        return Tally(
            loss=numbers[0],
            switch=numbers[1] > 0,
            save=numbers[2] > 0,
            leaving=tuple(rank for rank in range(self._world) if numbers[3 + rank] > 0),
            changes=self._numbers[end:],
        )
