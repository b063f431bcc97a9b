"""One pass over the data, as a script's outer loop gets it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Epoch:
    """A data epoch, to be iterated over: this member's parts of its global batches."""

    def __init__(self, number: int, batches: Callable[[int], Iterator[Any]]) -> None:
        #: Which one it is, counted from 0 since the job began.
        self.number = number
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        # Only the script's loop refers to the iterator, so a `break` closes it at once.
        return self._batches(self.number)
