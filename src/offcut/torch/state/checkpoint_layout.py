"""Which shares a checkpoint consists of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from offcut.torch.state import dcp_shards

#: What one member saves.
SavedT_contra = TypeVar("SavedT_contra", contravariant=True)


class CheckpointLayout(Protocol[SavedT_contra]):
    """Says which shares members write of what they save. A checkpoint is complete when all shares are there."""

    @property
    def adds_up(self) -> bool:
        """Whether only several members together have the whole state."""
        ...

    def names(self, world: int) -> Sequence[str]:
        """Return the names of all shares that `world` members write."""
        ...

    def shares(self, saved: SavedT_contra, rank: int, world: int) -> list[dcp_shards.Share]:
        """Copy what a member saves, as its shares. InputError if it could not be read back.

        Args:
            saved: what it saves; its tensors may be the living ones.
            rank: its rank among those that save.
            world: how many they are.
        """
        ...


class WholeState:
    """For jobs in which every member has the whole state: each writes its part of the tensors, dealt out by size."""

    adds_up = False

    def names(self, world: int) -> Sequence[str]:
        """See `CheckpointLayout`."""
        return [str(rank) for rank in range(world)]

    def shares(self, saved: dict[str, Any], rank: int, world: int) -> list[dcp_shards.Share]:
        """See `CheckpointLayout`."""
        return [dcp_shards.share_of_whole(saved, rank, world)]


class SavedLayers(NamedTuple):
    """What one member saves: the part of the state that all members have, and layers by number.

    `common` is None where another member saves it.
    """

    common: dict[str, Any] | None
    layers: dict[int, dict[str, Any]]


class ByLayer:
    """For jobs whose state is spread over the members: a share for each layer, and one for what all have.

    So a job goes on from it with any number of stages, and each member reads the layers that it needs.

    Args:
        layers: how many layers the model has.
    """

    adds_up = True
    #: The name of the share of what all members have.
    COMMON = "common"

    def __init__(self, layers: int) -> None:
        self._layers = layers

    @staticmethod
    def name(layer: int) -> str:
        """Return the name of a layer's share."""
        return f"layer-{layer}"

    def names(self, world: int) -> Sequence[str]:
        """See `CheckpointLayout`."""
        return [self.COMMON, *map(self.name, range(self._layers))]

    def shares(self, saved: SavedLayers, rank: int, world: int) -> list[dcp_shards.Share]:
        """See `CheckpointLayout`."""
        pieces = {self.name(i): tree for i, tree in saved.layers.items()}
        if saved.common is not None:
            pieces[self.COMMON] = saved.common
        return [dcp_shards.share_of_piece(name, tree) for name, tree in pieces.items()]
