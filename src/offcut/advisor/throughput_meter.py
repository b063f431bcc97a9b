"""Computes the throughput of a generation from its reports.

A report says how far the first rank was when its last step ended, on its own clock; so between two reports lies a whole
number of steps and exactly the time that they took, whatever the way of the message. Each such *stretch* gives a rate.

The first steps are slow (caches, allocators, autotuning): stretches are dropped until the median of 5 is within 5 % of
the median of the 10 that follow, and 3 more. What follows is measured: a median of 8 stretches, 20 where they vary.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

from offcut.advisor.drift import BLOCK, DriftDetector

_LEAST_DROPPED = 10
_LOOK = 5
_AHEAD = 10
_MORE = 3
_SETTLED = 1.05
_LEAST = 8
_LEAST_VARYING = 20
_VARYING = 0.10
#: A later segment of the generation has this many times as many stretches as the one before.
_AGAIN = 8
#: A job that has not settled after this many stretches is measured as it is.
_NEVER = 400
#: More samples/s than any job trains: such a report is wrong.
_ABSURD = 1e12
_UNUSABLE = 20


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of training at one size: `rate` in samples/s of the whole job, `spread` relative to it.

    `stretches` went into the median; `span_s` is the time from the first report. `settled` is False where warm-up never
    ended; `changed` says that the generation ran at another rate before.
    """

    rate: float
    spread: float
    stretches: int
    span_s: float
    settled: bool = True
    changed: bool = False


class ThroughputMeter:
    """Measures the throughput of one generation from its reports, which are added in their order."""

    __slots__ = (
        "_drift",
        "_early",
        "_first_s",
        "_last",
        "_next",
        "_paces",
        "_rates",
        "_unusable",
        "problem",
        "settled",
    )

    def __init__(self) -> None:
        self._last: tuple[float, int, int] | None = None
        self._first_s = 0.0
        #: Seconds per step and steps of each stretch, until it settles, and their rates.
        self._paces: list[tuple[float, int]] = []
        self._early: list[float] = []
        self._rates: deque[float] = deque(maxlen=512)
        self._next = _LEAST
        self._drift = DriftDetector()
        self._unusable = 0
        self.settled = False
        #: Why nothing can be learned from these reports; empty while something can.
        self.problem = ""

    def add_report(self, clock_s: float, step: int, samples: int) -> Segment | None:
        """Add a report of the first rank.

        Args:
            clock_s: The rank's clock at the end of `step`, in seconds.
            step: The number of steps that are done.
            samples: All samples until then.

        Returns:
            A new segment, if the report completes one.
        """
        last = self._last
        if last is None or step < last[1]:
            self._last = clock_s, step, samples
            self._first_s = self._first_s or clock_s
            return None
        steps, took_s, done = step - last[1], clock_s - last[0], samples - last[2]
        if steps == 0:
            return None
        self._last = clock_s, step, samples
        if not (took_s > 0 and 0 < done < _ABSURD * took_s):
            self._refuse(took_s, done)
            return None
        self._unusable = 0
        rate = done / took_s
        if self.settled:
            self._rates.append(rate)
            level = self._drift.add_rate(rate)
            if level is not None:
                recent = list(self._rates)[-BLOCK:]
                self._rates = deque(recent, maxlen=512)
                self._next = _AGAIN * len(recent)
                self._drift = DriftDetector()
                return Segment(level, _spread(recent), len(recent), clock_s - self._first_s, changed=True)
        else:
            self._paces.append((took_s / steps, steps))
            self._early.append(rate)
            self._settle()
            if len(self._paces) >= _NEVER and not self.settled:
                self.settled = True
                rates = self._early[_NEVER // 2 :]
                self._next = _AGAIN * _NEVER
                return Segment(median(rates), _spread(rates), 1, clock_s - self._first_s, settled=False)
        return self._segment(clock_s)

    def _refuse(self, took_s: float, done: int) -> None:
        self._unusable += 1
        if self._unusable == _UNUSABLE:
            if done == 0:
                self.problem = "its steps train no samples"
            else:
                self.problem = f"its reports are absurd ({done} samples in {took_s:g} s)"

    def _settle(self) -> None:
        """Check whether the warm-up is over: of the last 15 stretches the first five are as fast as the others."""
        if len(self._paces) < _LOOK + _AHEAD:
            return
        dropped = len(self._paces) - _AHEAD
        if dropped < _LEAST_DROPPED and sum(steps for _, steps in self._paces[:dropped]) < _LEAST_DROPPED:
            return
        here = median([pace for pace, _ in self._paces[dropped - _LOOK : dropped]])
        if here <= _SETTLED * median([pace for pace, _ in self._paces[dropped:]]):
            self.settled = True
            self._rates.extend(self._early[dropped + _MORE :])
            for rate in self._rates:
                self._drift.add_rate(rate)

    def _segment(self, clock_s: float) -> Segment | None:
        count = len(self._rates)
        if count < self._next:
            return None
        spread = _spread(list(self._rates))
        if spread > _VARYING and count < _LEAST_VARYING:
            return None
        self._next = _AGAIN * count
        return Segment(median(self._rates), spread, count, clock_s - self._first_s)


def _spread(rates: list[float]) -> float:
    """Return the standard deviation of `rates` over their median, estimated by the median deviation."""
    middle = median(rates)
    return 1.4826 * median([abs(rate - middle) for rate in rates]) / middle
