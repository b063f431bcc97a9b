"""The node counts that a job may have."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from offcut.errors import InputError

#: A range is kept as a list: one that is written by mistake must not fill the memory.
_LARGEST = 1_000_000
_RANGE = re.compile(r"(\d+):(\d+)(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The allowed sizes of a job, increasing, all at least 1. Size 0 (the job waits) is always possible besides."""

    allowed: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.allowed:
            raise InputError("sizes: none given.", next_step="Write for example '1:8' or '1,2,4'.")
        if self.allowed[0] < 1:
            raise InputError(f"sizes: {self.allowed[0]} is below 1.", next_step="The smallest size is 1 node.")
        for previous, n in zip(self.allowed, self.allowed[1:], strict=False):
            if n <= previous:
                raise InputError(f"sizes: {n} follows {previous}.", next_step="List sizes once, in increasing order.")

    @classmethod
    def parse(cls, text: str) -> Sizes:
        """Read `4`, `1:8` (all from 1 to 8), `2:8:2` (every second) or `1,2,4` (a list)."""
        text = text.strip()
        if match := _RANGE.fullmatch(text):
            low, high, stride = int(match[1]), int(match[2]), int(match[3] or 1)
            if low > high:
                raise InputError(f"sizes '{text}': min {low} > max {high}.", next_step="Write the smaller one first.")
            if stride < 1:
                raise InputError(f"sizes '{text}': the stride is {stride}.", next_step="A stride is at least 1.")
            if high > _LARGEST:
                raise InputError(
                    f"sizes '{text}': {high} is beyond any machine.", next_step=f"Sizes go up to {_LARGEST}."
                )
            return cls(tuple(range(low, high + 1, stride)))
        try:
            return cls(tuple(int(part) for part in text.split(",")))
        except ValueError:
            raise InputError(
                f"sizes '{text}' cannot be read.", next_step="Write '4', '1:8', '2:8:2' or '1,2,4'."
            ) from None

    @property
    def smallest(self) -> int:
        return self.allowed[0]

    @property
    def largest(self) -> int:
        return self.allowed[-1]

    @property
    def contiguous(self) -> bool:
        """Whether every count from the smallest to the largest is allowed."""
        return self.largest - self.smallest + 1 == len(self.allowed)

    def fit(self, nodes: int) -> int:
        """The largest allowed size that `nodes` nodes can carry; 0 where they are too few."""
        i = bisect_right(self.allowed, nodes)
        return self.allowed[i - 1] if i else 0

    def __contains__(self, size: int) -> bool:
        i = bisect_right(self.allowed, size)
        return bool(i) and self.allowed[i - 1] == size

    def __str__(self) -> str:
        if len(self.allowed) > 1 and self.contiguous:
            return f"{self.smallest}:{self.largest}"
        return ",".join(map(str, self.allowed))
