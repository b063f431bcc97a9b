"""Limits on how much to claim: caps, quiet hours, pauses after failures. Pure: time comes in as an argument."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LONGEST_PAUSE_S = 3600.0


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From `from_min` to `to_min` (minutes after midnight, local time) on these days (0: Monday).

    A stretch over midnight belongs to the day on which it begins.
    """

    days: frozenset[int]
    from_min: int
    to_min: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `Mon-Fri 08:00-18:00`, `Sun 00:00-24:00`, `22:00-06:00` (every day). ValueError says what is wrong."""
        words = text.split()
        try:
            days, hours = words if len(words) == 2 else ("Mon-Sun", *words)
            first, _, last = days.partition("-")
            low, high = _DAYS.index(first), _DAYS.index(last or first)
            begin, _, end = hours.partition("-")
            of_days = frozenset(range(low, high + 1)) if low <= high else frozenset({*range(low, 7), *range(high + 1)})
            quiet = cls(of_days, _minutes(begin), _minutes(end))
        except (ValueError, TypeError):
            raise ValueError(f"'{text}' are not quiet hours; write for example 'Mon-Fri 08:00-18:00'") from None
        if quiet.from_min == quiet.to_min:
            raise ValueError(f"'{text}' begin and end at the same minute")
        return quiet

    def hold(self, now: datetime) -> bool:
        """Return whether it is quiet at `now`."""
        minute, today = 60 * now.hour + now.minute, now.weekday()
        if self.from_min < self.to_min:
            return today in self.days and self.from_min <= minute < self.to_min
        yesterday = (now - timedelta(days=1)).weekday()
        return (today in self.days and minute >= self.from_min) or (yesterday in self.days and minute < self.to_min)


def check_quiet(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the texts of quiet hours as they are. ValueError if one cannot be read."""
    for text in texts:
        QuietHours.parse(text)
    return texts


def _minutes(text: str) -> int:
    hour, minute = text.split(":")
    value = 60 * int(hour) + int(minute)
    if not 0 <= value <= 24 * 60 or not 0 <= int(minute) < 60:
        raise ValueError(text)
    return value


def most_nodes(idle: int, held: int, max_nodes: int | None, max_share: float) -> int:
    """Return how many nodes may be held when `idle` are idle and `held` are held already."""
    # Rounded down: half a node is none. The tolerance is for shares such as 0.1 of 10.
    share = int(max_share * (idle + held) + 1e-9)
    return share if max_nodes is None else min(max_nodes, share)


@dataclass(slots=True)
class SubmissionRate:
    """At most `per_minute` submissions in any minute."""

    per_minute: int
    _times: deque[float] = field(default_factory=deque)

    def left(self, now_s: float) -> int:
        while self._times and self._times[0] <= now_s - 60.0:
            self._times.popleft()
        return max(0, self.per_minute - len(self._times))

    def note(self, now_s: float) -> None:
        self._times.append(now_s)


@dataclass(slots=True)
class Pause:
    """Claims nothing after repeated failures, for twice as long each time, until a pilot succeeds."""

    after: int
    first_s: float
    failures: int = 0
    until_s: float = 0.0
    reason: str = ""
    _next_s: float = 0.0

    def failed(self, now_s: float, reason: str) -> bool:
        """Note a failure. Return True if it started a pause."""
        self.failures += 1
        if self.failures < self.after or now_s < self.until_s:
            return False
        length_s = self._next_s or self.first_s
        self._next_s = min(_LONGEST_PAUSE_S, 2 * length_s)
        self.until_s, self.reason = now_s + length_s, reason
        return True

    def start(self, now_s: float, length_s: float, reason: str) -> None:
        """Pause for `length_s`."""
        self.until_s, self.reason = now_s + length_s, reason

    def succeeded(self) -> None:
        self.failures, self.until_s, self.reason, self._next_s = 0, 0.0, "", 0.0

    def holds(self, now_s: float) -> bool:
        return now_s < self.until_s
