"""The Protocols of a training step and its samples: the interface between a member and the steps of any kind of job."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from offcut.torch.membership.process_group import Group
from offcut.torch.state.cursor import Cursor
from offcut.torch.step.gradient_reduce import MemberFlags, StepOutcome


class SampleOrder(Protocol):
    """Which samples belong to which step, as far as the training loop asks."""

    def done(self, cursor: Cursor) -> bool:
        """Return whether the data epoch has no sample left."""
        ...

    def left(self, cursor: Cursor, epochs: int, size: int, goal: int | None) -> tuple[int, int] | None:
        """Return how many steps and samples are left; None: not known. See `Sampler.left`."""
        ...

    def end(self, epoch: int) -> Cursor:
        """Return the cursor at the end of a data epoch."""
        ...


class Step(Protocol):
    """The step under way. Order of calls: `begin`, `next_part` for each part, `compute`, `reduce`, `apply`, `settle`.

    Where the generation breaks, `fail` comes in place of what is left, then `settle`; the batch comes again.
    """

    @property
    def commits_in_reduce(self) -> bool:
        """Whether other members may count the step as applied once the reduce has begun.

        Then nothing else may save this member's state from before the reduce until the next boundary.
        """
        ...

    @property
    def more_parts(self) -> bool:
        """Return whether parts of this step have still to begin."""
        ...

    def batch_size(self, group: Group) -> int:
        """Return the number of samples in a whole global batch of the group."""
        ...

    def begin(self, group: Group) -> torch.Tensor:
        """Begin the next step, on the global batch at the cursor.

        Returns:
            The positions in the dataset of the samples that fall to this member: int64 [n].
        """
        ...

    def next_part(self, group: Group) -> Any:
        """Return what the script's loop gets next."""
        ...

    def drop(self) -> None:
        """Drop the parts that have not begun, because the script has left its loop."""
        ...

    def compute(self, group: Group) -> None:
        """Compute what the script has not computed, so that the gradients are complete. Raises Abandoned."""
        ...

    def reduce(self, group: Group, flags: MemberFlags) -> StepOutcome:
        """Sum the gradients, or a vote on them, over the members, together with their flags. Raises Abandoned."""
        ...

    def apply(self, group: Group, outcome: StepOutcome) -> None:
        """Update the parameters, and all else that makes the step part of the state."""
        ...

    def fail(self) -> None:
        """Note that the generation broke during this step."""
        ...

    def settle(self, *, applied: bool) -> None:
        """Make the state that of the step, or of the one before if it failed, at the boundary after a step."""
        ...
