"""The update of a step where members hold shards of the optimizers' state: each updates some parameters, for all.

A member sends its parameters when it has updated all that it holds. So once one member has the parameters of all
others, each of them has made its part of the update, and is able to apply the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.state.optimizer_shards import OptimizerShards

#: Marks these messages among those of a group.
_TAG = 7


class ShardedUpdate:
    """Updates what this member holds, and exchanges the parameters.

    Args:
        shards: this member's part of the optimizers' state.
        visit: called at the points where tests let something fail; if it returns True, the generation broke.
    """

    def __init__(self, shards: OptimizerShards, visit: Callable[[str], bool]) -> None:
        self._shards = shards
        self._visit = visit
        #: By rank, the parameters that other members have sent: bytes.
        self._received: dict[int, torch.Tensor] = {}

    def updating(self) -> AbstractContextManager[None]:
        """Let the optimizers change within this context only what this member holds."""
        return self._shards.updating()

    def exchange(self, group: Group) -> None:
        """Receive what the other members have updated; it changes no parameters yet.

        Args:
            group: the members; all call this at once, after an update with the same gradients.

        Raises:
            Abandoned: the generation broke.
        """
        if self._visit("exchange"):
            raise Abandoned("injected before the parameters were exchanged")
        mine = _packed(self._owned(group.rank))
        others = [rank for rank in range(group.world) if rank != group.rank]
        self._received = {rank: mine.new_empty(_bytes(self._owned(rank))) for rank in others}
        under_way = [group.start_receive(room, rank, _TAG) for rank, room in self._received.items() if room.numel()]
        under_way += [group.send(mine, rank, _TAG) for rank in others if mine.numel()]
        for work in under_way:
            group.wait(work)
        if self._visit("exchange"):
            raise Abandoned("injected after the parameters were exchanged")

    def apply(self) -> None:
        """Take over the parameters that the other members have sent."""
        for rank, sent in self._received.items():
            _unpack(sent, self._owned(rank))
        self._received = {}
        self._shards.applied()

    def fail(self) -> None:
        """Go back to before the update; what is being received may still be written to, and is released."""
        self._received = {}
        self._shards.set_aside()

    def _owned(self, rank: int) -> list[torch.nn.Parameter]:
        """Return the parameters that a member sends, those of the widest type first: so each is aligned to its type."""
        plan = self._shards.plan
        assert plan is not None, "no generation has formed"
        owned = self._shards.parameters(shard for shard, owner in enumerate(plan.owners) if owner == rank)
        return sorted((p for p in owned if p.requires_grad), key=lambda p: -p.element_size())


def _bytes(parameters: Sequence[torch.nn.Parameter]) -> int:
    return sum(p.numel() * p.element_size() for p in parameters)


def _packed(parameters: Sequence[torch.nn.Parameter]) -> torch.Tensor:
    """Return copies of the parameters' bytes, one after another, in the CPU's memory."""
    message = torch.empty(_bytes(parameters), dtype=torch.uint8, device="cpu")
    for p, place in zip(parameters, _places(message, parameters), strict=True):
        place.copy_(p.detach())
    return message


def _unpack(message: torch.Tensor, parameters: Sequence[torch.nn.Parameter]) -> None:
    with torch.no_grad():
        for p, place in zip(parameters, _places(message, parameters), strict=True):
            p.copy_(place)


def _places(message: torch.Tensor, parameters: Sequence[torch.nn.Parameter]) -> list[torch.Tensor]:
    """Return the part of a message that each parameter has, in the parameter's type and shape."""
    parts = message.split([p.numel() * p.element_size() for p in parameters])
    return [part.view(p.dtype).view(p.shape) for part, p in zip(parts, parameters, strict=True)]
