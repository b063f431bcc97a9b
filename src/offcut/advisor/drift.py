"""Detects that a job's throughput has changed: a two-sided cumulative sum (Page 1954) over medians of 20 reports."""

from __future__ import annotations

import math
from statistics import median

#: How many reports make one block.
BLOCK = 20
#: How many blocks make the reference.
_REFERENCE = 3
#: Slack and threshold, in standard deviations of a block's median: a shift of 10 % is found within 3 to 4 blocks where
#: steps vary by 5 %, and there is one false alarm in more than 3,000 blocks.
_SLACK = 1.0
_THRESHOLD = 8.0
#: Medians of blocks vary by this much at least.
_LEAST_DEVIATION = 0.01


class DriftDetector:
    """Detects when the rates of one generation have left the level of its first blocks."""

    __slots__ = ("_alarmed", "_block", "_deviation", "_down", "_level", "_medians", "_up")

    def __init__(self) -> None:
        self._block: list[float] = []
        self._medians: list[float] = []
        self._level = 0.0
        self._deviation = 0.0
        self._up = self._down = 0.0
        self._alarmed = False

    def add_rate(self, rate: float) -> float | None:
        """Add a rate. Return the new level in samples/s once the rate has left the old one, else None."""
        self._block.append(rate)
        if len(self._block) < BLOCK:
            return None
        logs = sorted(math.log(value) for value in self._block)
        self._block.clear()
        middle = median(logs)
        self._medians.append(middle)
        if len(self._medians) <= _REFERENCE:
            # A block's median varies by 1.25/sqrt(n) of what single rates do.
            spread = 0.7413 * (logs[3 * BLOCK // 4] - logs[BLOCK // 4])
            self._deviation = max(self._deviation, 1.25 * spread / math.sqrt(BLOCK), _LEAST_DEVIATION)
            self._level = median(self._medians)
            return None
        z = (middle - self._level) / self._deviation
        self._up = max(0.0, self._up + z - _SLACK)
        self._down = max(0.0, self._down - z - _SLACK)
        if self._alarmed:
            return math.exp(middle)
        # The block that raises the alarm may have begun before the change: the next one tells the new level.
        self._alarmed = max(self._up, self._down) >= _THRESHOLD
        return None
