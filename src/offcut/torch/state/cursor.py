"""The position of a training in its data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of the next sample: data epoch, and how many of its samples are done."""

    epoch: int = 0
    offset: int = 0
