"""The phases of a training: a script's loops over `epochs()`, one after the other."""

from __future__ import annotations

from typing import Any


class Phases:
    """Which data epoch each phase began with; part of the training's state, so that a joiner skips what is over."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        #: How many loops over `epochs()` this script has come to.
        self._entered = 0

    def enter(self, epoch: int) -> int:
        """Note that the script comes to its next loop over `epochs()`.

        Args:
            epoch: the data epoch with which the phase begins, unless the members have begun it before.

        Returns:
            The phase's number.
        """
        number = self._entered
        self._entered += 1
        if number == len(self._starts):
            self._starts.append(epoch)
        return number

    def start(self, number: int) -> int:
        """Return the data epoch with which a phase began."""
        return self._starts[number]

    def over(self, number: int) -> bool:
        """Return whether the members have come to a later phase."""
        return len(self._starts) > number + 1

    def state_dict(self) -> dict[str, Any]:
        return {"starts": list(self._starts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._starts = list(state["starts"])
