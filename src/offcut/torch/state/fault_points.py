"""Named points at which tests let a member fail."""

from __future__ import annotations

from typing import Protocol


class FaultPoints(Protocol):
    """Is asked by members at every point; `offcut.torch.testing.fault_injection` implements it."""

    def visit(self, point: str, *, step: int = 0, rank: int = 0, generation: int = 0) -> bool:
        """Let the faults that a test has planned for `point` strike.

        Args:
            point: one of the names in `fault_injection.POINTS`.
            step: the last applied step.
            rank: this member's rank.
            generation: its generation.

        Returns:
            True if the caller must treat its generation as broken.
        """
        ...


class NoFaults:
    """Nothing fails."""

    def visit(self, point: str, *, step: int = 0, rank: int = 0, generation: int = 0) -> bool:
        """Return False."""
        return False
