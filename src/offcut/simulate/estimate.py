"""Estimates what a site would gain: replays of its idle windows with training jobs that never run out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from offcut.errors import InputError
from offcut.simulate.metrics import ReplayMetrics
from offcut.simulate.options import NAMED_COSTS, ReplayOptions, ResizeCost
from offcut.simulate.parallel_replays import replay_each
from offcut.traces.idle_from_log import IdleRecord
from offcut.traces.job_list import ListedJob
from offcut.traces.statistics import WindowStatistics, describe
from offcut.traces.windows import Windows

#: The costs to compare: resizes in process, by restarting all processes, and one in between.
COSTS: dict[str, ResizeCost] = {
    "offcut, in process": NAMED_COSTS["measured"],
    "5 s": ResizeCost(grow_s=5.0, shrink_s=5.0, boot_s=1.0, start_s=5.0),
    "restart, 18 s and 12 s": NAMED_COSTS["published"],
}
CONCURRENCY = (1, 5, 10, 20, 50, 100)
#: The number of concurrent jobs in the main replay.
BASE_JOBS = 50
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The estimate for one site.

    `base` is the main replay; the others vary one assumption each, in the order of `COSTS` and `CONCURRENCY`.
    """

    source: str
    rule: str
    notes: tuple[str, ...]
    nodes: int
    days: float
    statistics: WindowStatistics
    windows: Windows
    base: ReplayMetrics
    by_cost: dict[str, ReplayMetrics]
    by_concurrency: dict[int, ReplayMetrics]

    @property
    def node_hours_a_day(self) -> float:
        """Dedicated node-hours of equal work, per day."""
        return self.base.work_node_h / self.days

    def as_dict(self) -> dict[str, Any]:
        """Return the estimate as a JSON value."""
        return {
            "source": self.source,
            "rule": self.rule,
            "notes": list(self.notes),
            "nodes": self.nodes,
            "days": self.days,
            "statistics": asdict(self.statistics),
            "work_node_hours_a_day": self.node_hours_a_day,
            "base": self.base.as_dict(),
            "by_cost": {name: metrics.as_dict() for name, metrics in self.by_cost.items()},
            "by_concurrency": {str(jobs): metrics.as_dict() for jobs, metrics in self.by_concurrency.items()},
        }


def estimate(
    record: IdleRecord,
    source: str,
    jobs: Sequence[ListedJob],
    *,
    days: float = 7.0,
    progress: Callable[[float], None] | None = None,
) -> Estimate:
    """Replay the middle of a record of idle windows under several assumptions.

    Args:
        record: the idle windows.
        source: the name of the record, for the result.
        jobs: the training jobs, repeated without end.
        days: the length of the replayed time, in days.
        progress: called with the share that is done.

    Returns:
        The main replay and its variations.

    Raises:
        InputError: no node is idle, or `days` is not greater than 0.
    """
    if not days > 0:
        raise InputError(f"--days must be greater than 0, but is {days:g}.", next_step="Give a number above 0.")
    start_s, end_s = record.start_s, record.end_s
    if end_s - start_s > days * DAY_S:
        start_s = (start_s + end_s - days * DAY_S) / 2
        end_s = start_s + days * DAY_S
    windows = record.windows.between(start_s, end_s)
    statistics = describe(windows, record.nodes, start_s, end_s)
    base = ReplayOptions(cost=COSTS["offcut, in process"], concurrency=BASE_JOBS, repeat=True)
    options = {(name, BASE_JOBS): _with(base, cost, BASE_JOBS) for name, cost in COSTS.items()}
    first = next(iter(COSTS))
    options |= {(first, count): _with(base, COSTS[first], count) for count in CONCURRENCY}
    made = replay_each(
        windows, jobs, list(options.values()), start_s=start_s, end_s=end_s, compare=False, progress=progress
    )
    results = dict(zip(options, made, strict=True))
    return Estimate(
        source=source,
        rule=record.rule,
        notes=record.notes,
        nodes=record.nodes,
        days=(end_s - start_s) / DAY_S,
        statistics=statistics,
        windows=windows,
        base=results[first, BASE_JOBS],
        by_cost={name: results[name, BASE_JOBS] for name in COSTS},
        by_concurrency={count: results[first, count] for count in CONCURRENCY},
    )


def _with(base: ReplayOptions, cost: ResizeCost, concurrency: int) -> ReplayOptions:
    return replace(base, cost=cost, concurrency=concurrency)
