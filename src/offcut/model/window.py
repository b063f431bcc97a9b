"""A node's idle interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """Node `node` is idle in `[start_s, end_s)`; seconds on the clock of the trace or log it comes from."""

    node: str
    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s
