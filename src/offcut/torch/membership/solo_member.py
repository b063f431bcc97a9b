"""The membership of a script that runs without offcut: a group of one that no worker joins and that never breaks."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from offcut.membership.generation import Generation
from offcut.torch.membership.process_group import Group
from offcut.torch.membership.state_checksum import Checksum


class SoloMember:
    """See `Membership`. There is one generation, number 0, and nothing is saved."""

    joined = True
    left = False
    resumed = False
    furthest = -1
    newer = False
    leaving = False
    checkpoint_due = False

    def __init__(self) -> None:
        only = Generation(0, ("alone",), store="", job="")
        self.group: Group | None = Group(only, 0, threading.Condition(), lambda: False)
        self.rank, self.world = 0, 1

    def enter_next(self, gone: Sequence[int] = ()) -> None:
        """Stay in the only generation."""

    def switch(self, leaving: Sequence[int]) -> None:
        """Stay in the only generation."""

    def abandon(self, reason: str) -> None:
        """Stay in the only generation: the step that failed is done again in it."""

    def checksum(self, group: Group) -> Checksum | None:
        """Return None: there is no other member to compare with."""
        return None

    def begin_checkpoint(self, group: Group) -> None:
        """Save nothing: a script that runs without offcut makes its own checkpoints."""

    def publish_checkpoint(self, stable_step: int) -> None:
        """Publish nothing."""

    def save_at_end(self, group: Group) -> None:
        """Save nothing."""
