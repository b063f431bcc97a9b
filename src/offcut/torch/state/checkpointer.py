"""The Protocol of checkpointers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

#: What one member saves: the whole state where all members have all of it, otherwise its layers.
SavedT_contra = TypeVar("SavedT_contra", contravariant=True)


class Checkpointer(Protocol[SavedT_contra]):
    """One member's part in keeping checkpoints (`Checkpoints`).

    No call waits for other members, and a failing disk never raises.
    """

    @property
    def due(self) -> bool:
        """Whether a new checkpoint should begin. The first member asks, and tells the others in the next reduce."""
        ...

    def begin(
        self, step: int, generation: int, workers: tuple[str, ...], rank: int, read: Callable[[], SavedT_contra]
    ) -> None:
        """Begin a checkpoint, as all members of the generation do at the same boundary.

        The state is copied before this returns, and written in a thread of its own.

        Args:
            step: the last applied step.
            generation: the number of the current generation.
            workers: its members' names, by rank.
            rank: this member's rank.
            read: returns what this member saves; its tensors may be the living ones.
        """
        ...

    def publish(self, stable_step: int) -> object:
        """Give a checkpoint its final name, if it is complete and of `stable_step` or an earlier step."""
        ...

    def members_changed(self, generation: int, workers: tuple[str, ...]) -> None:
        """Note that a new generation of `workers` has formed: shares of members that have left may never come."""
        ...

    def save_now(self, step: int, saved: SavedT_contra) -> None:
        """Write `saved`, the state after `step`, and publish it, before this returns."""
        ...
