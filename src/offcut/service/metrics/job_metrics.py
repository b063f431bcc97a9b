"""Figures of the jobs of the running controller: resize latencies, throughput, node-seconds of training."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from offcut.histogram import Histogram

#: Latencies of this many resizes are kept, the newest.
_RESIZES = 10_000
#: A job's throughput is the mean over this many seconds.
_RATE_WINDOW_S = 5.0
#: Bounds of the histograms of resizes.
_RESIZE_BOUNDS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True, slots=True)
class Resize:
    """One resize, from the controller's decision to the first step in the new generation."""

    time_s: float
    job: str
    generation: int
    #: `grow`: workers joined. `shrink`: some left at a boundary, or died.
    what: Literal["start", "grow", "shrink"]
    size: int
    took_ms: float


@dataclass(slots=True)
class _Setting:
    set_s: float
    what: Literal["start", "grow", "shrink"]
    size: int


@dataclass(slots=True)
class Metrics:
    resizes: list[Resize] = field(default_factory=list)
    #: How many resizes there were, whether they are still in `resizes` or not.
    resized: int = 0
    #: The durations of all of them, by kind.
    resize_seconds: dict[str, Histogram] = field(
        default_factory=lambda: {kind: Histogram(_RESIZE_BOUNDS_S) for kind in ("start", "grow", "shrink")}
    )
    used_node_s: float = 0.0
    first_step_s: float | None = None
    _settings: dict[tuple[str, int], _Setting] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _since_s: float | None = None
    _samples: dict[str, deque[tuple[float, int]]] = field(default_factory=dict)

    def training_already(self, now_s: float, sizes: dict[str, int]) -> None:
        """Note how many nodes train for each job as this controller begins: an earlier one has started them."""
        self._account(now_s)
        self._sizes |= sizes

    def generation_set(self, now_s: float, job: str, generation: int, size: int, previous: int) -> None:
        what: Literal["start", "grow", "shrink"] = "start" if not previous else "grow" if size > previous else "shrink"
        self._settings = {key: value for key, value in self._settings.items() if key[0] != job}
        if size:
            self._settings[job, generation] = _Setting(now_s, what, size)
        self._account(now_s)
        # Until a new generation has formed, nodes that were in the old one go on training.
        self._sizes[job] = min(size, self._sizes.get(job, 0))

    def generation_formed(self, now_s: float, job: str, generation: int) -> float | None:
        """Return the seconds since the generation was set; None if the controller was restarted in between."""
        setting = self._settings.pop((job, generation), None)
        if setting is None:
            return None
        self._account(now_s)
        self._sizes[job] = setting.size
        took_s = now_s - setting.set_s
        self.resizes.append(Resize(now_s, job, generation, setting.what, setting.size, 1000 * took_s))
        self.resized += 1
        self.resize_seconds[setting.what].observe(took_s)
        if len(self.resizes) > 2 * _RESIZES:
            del self.resizes[:-_RESIZES]
        if self.first_step_s is None:
            self.first_step_s = now_s
        return took_s

    def job_stopped(self, now_s: float, job: str) -> None:
        self._account(now_s)
        self._sizes.pop(job, None)

    def forget(self, job: str) -> None:
        """Drop what is kept of a job that has ended."""
        self._samples.pop(job, None)
        self._sizes.pop(job, None)
        self._settings = {key: value for key, value in self._settings.items() if key[0] != job}

    def used_by(self, now_s: float) -> float:
        """Return the node-seconds in which nodes were members of generations that had formed."""
        self._account(now_s)
        return self.used_node_s

    def _account(self, now_s: float) -> None:
        if self._since_s is not None:
            self.used_node_s += sum(self._sizes.values()) * (now_s - self._since_s)
        self._since_s = now_s

    def progressed(self, now_s: float, job: str, samples: int) -> None:
        seen = self._samples.setdefault(job, deque())
        seen.append((now_s, samples))
        while seen[0][0] < now_s - _RATE_WINDOW_S and len(seen) > 2:
            seen.popleft()

    def rate(self, now_s: float, job: str) -> float:
        """Return the samples/s of the whole job over the last moments; 0 if none were reported lately."""
        seen = self._samples.get(job)
        if not seen or len(seen) < 2 or seen[-1][0] < now_s - _RATE_WINDOW_S:
            return 0.0
        elapsed_s = seen[-1][0] - seen[0][0]
        return max(0.0, (seen[-1][1] - seen[0][1]) / elapsed_s) if elapsed_s > 0 else 0.0


def percentile(values: list[float], share: float) -> float | None:
    """Return the value below which `share` (0..1) of `values` lie (nearest rank); None if there are none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
