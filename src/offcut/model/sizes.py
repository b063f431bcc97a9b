"""The node counts that a job may have."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offcut.errors import InputError

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

#: The largest size that is accepted; no machine has more nodes.
LARGEST = 1_000_000
#: The largest number of sizes that are listed one by one; ranges of consecutive sizes may be longer.
_MOST_LISTED = 10_000
_NUMBER = r"(\d{1,18})"
_RANGE = re.compile(rf"{_NUMBER}:{_NUMBER}(?::{_NUMBER})?")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The allowed sizes of a job, increasing, all at least 1. Size 0 (the job waits) is always possible as well."""

    #: A `range` if the sizes are evenly spaced, which takes no memory, otherwise a tuple.
    allowed: Sequence[int]

    def __post_init__(self) -> None:
        if not self.allowed:
            raise InputError("sizes: none given.", next_step="Write for example '1:8' or '1,2,4'.")
        if self.allowed[0] < 1:
            raise InputError(f"sizes: {self.allowed[0]} is below 1.", next_step="The smallest size is 1 node.")
        if not isinstance(self.allowed, range):
            for previous, n in zip(self.allowed, self.allowed[1:], strict=False):
                if n <= previous:
                    raise InputError(
                        f"sizes: {n} follows {previous}.", next_step="List sizes once, in increasing order."
                    )
        if self.allowed[-1] > LARGEST:
            raise InputError(
                f"sizes: {self.allowed[-1]} is beyond any machine.", next_step=f"Sizes go up to {LARGEST}."
            )
        object.__setattr__(self, "allowed", _compact(self.allowed))
        if not self.contiguous and len(self.allowed) > _MOST_LISTED:
            raise InputError(
                f"sizes: {len(self.allowed):,} of them are listed, at most {_MOST_LISTED:,} may be.",
                next_step="Write '1:N' for every size up to N.",
            )

    @classmethod
    def parse(cls, text: str) -> Sizes:
        """Read `4`, `1:8` (all from 1 to 8), `2:8:2` (every second) or `1,2,4` (a list)."""
        text = text.strip()
        shown = text if len(text) <= 40 else f"{text[:40]}..."
        if match := _RANGE.fullmatch(text):
            low, high, stride = int(match[1]), int(match[2]), int(match[3] or 1)
            if low > high:
                raise InputError(f"sizes '{shown}': min {low} > max {high}.", next_step="Write the smaller one first.")
            if stride < 1:
                raise InputError(f"sizes '{shown}': the stride is {stride}.", next_step="A stride is at least 1.")
            if high > LARGEST:
                raise InputError(
                    f"sizes '{shown}': {high} is beyond any machine.", next_step=f"Sizes go up to {LARGEST}."
                )
            return cls(range(low, high + 1, stride))
        try:
            return cls(tuple(int(part) for part in text.split(",")))
        except ValueError:
            raise InputError(
                f"sizes '{shown}' cannot be read.", next_step="Write '4', '1:8', '2:8:2' or '1,2,4'."
            ) from None

    @property
    def smallest(self) -> int:
        return self.allowed[0]

    @property
    def largest(self) -> int:
        return self.allowed[-1]

    @property
    def contiguous(self) -> bool:
        """True if every count from the smallest to the largest is allowed."""
        return self.largest - self.smallest + 1 == len(self.allowed)

    def largest_within(self, nodes: int) -> int:
        """Return the largest allowed size that is at most `nodes`; 0 if every size is larger."""
        i = bisect_right(self.allowed, nodes)
        return self.allowed[i - 1] if i else 0

    def __contains__(self, size: int) -> bool:
        i = bisect_right(self.allowed, size)
        return bool(i) and self.allowed[i - 1] == size

    def __str__(self) -> str:
        """Return the text that `parse` reads as these sizes."""
        if isinstance(self.allowed, range) and len(self.allowed) > 1:
            if self.contiguous:
                return f"{self.smallest}:{self.largest}"
            if len(self.allowed) > 2:
                return f"{self.smallest}:{self.largest}:{self.allowed.step}"
        return ",".join(map(str, self.allowed))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the JSON schema: the text that `parse` reads, or `{"allowed": ...}` with that text or with a list."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(
            _read, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )


def _compact(allowed: Sequence[int]) -> Sequence[int]:
    """Return the sizes as a `range` if they are evenly spaced."""
    if isinstance(allowed, range):
        return allowed
    step = allowed[1] - allowed[0] if len(allowed) > 1 else 1
    spaced = range(allowed[0], allowed[-1] + 1, step)
    same = len(spaced) == len(allowed) and all(a == b for a, b in zip(spaced, allowed, strict=True))
    return spaced if same else tuple(allowed)


def _read(given: Any) -> Sizes:
    """Read sizes from a JSON value."""
    if isinstance(given, Sizes):
        return given
    try:
        allowed = given["allowed"] if isinstance(given, dict) else given
        return Sizes.parse(allowed) if isinstance(allowed, str) else Sizes(tuple(allowed))
    except (InputError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not valid sizes: {error}") from None
