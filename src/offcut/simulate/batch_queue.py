"""The batch-queue simulator: when would each job of a log have started under a textbook scheduler?

Pure and event-driven. At one instant ends come first, then submissions, then one decision. Started jobs take the
lowest-numbered free nodes, so that idle windows come out of it, with what the queue knew of their ends.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from offcut.simulate.batch_schedulers import POLICIES, Scheduler
from offcut.traces.batch_log import BatchLog, count_note
from offcut.traces.free_nodes import FreeNodes, Range
from offcut.traces.windows import Floats, Windows

#: The tau of bounded slowdown: run times below it count as this long.
SLOWDOWN_BOUND_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMetrics:
    """Means over all jobs.

    wait = start - submit; bounded slowdown = max(1, (wait + run) / max(run, 10 s));
    utilisation = sum of nodes * run / (machine * (last end - first submission)).
    """

    jobs: int
    mean_wait_s: float
    median_wait_s: float
    max_wait_s: float
    mean_bounded_slowdown: float
    utilisation: float
    makespan_s: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueResult:
    """`start_s[i]` is the start of `log.jobs[i]`. `windows` lie between the first and the last submission."""

    log: BatchLog
    nodes: int
    scheduler: Scheduler
    start_s: Floats
    windows: Windows
    metrics: QueueMetrics
    notes: tuple[str, ...] = ()


def simulate_queue(
    log: BatchLog,
    nodes: int | None = None,
    scheduler: Scheduler = "easy",
    progress: Callable[[int], None] | None = None,
) -> QueueResult:
    """Run `log` through a scheduler on a machine of `nodes` nodes (default: what the log says).

    A job without a requested time is taken to have asked for its run time; one that ran longer than it asked for, too
    (a note counts them): so no job outlives its request and every reservation holds. `progress` is called with the
    number of jobs that have ended. Raises InputError where a job is wider than the machine.
    """
    machine = log.size(nodes)
    jobs = log.jobs
    submit_s = [job.submit_s for job in jobs]
    run_s = [job.run_s for job in jobs]
    asked_s = [run if job.requested_s is None else job.requested_s for job, run in zip(jobs, run_s, strict=True)]
    requested_s = [max(asked, run) for asked, run in zip(asked_s, run_s, strict=True)]
    width = [job.nodes for job in jobs]
    policy = POLICIES[scheduler](machine, width, requested_s)
    free = FreeNodes(machine, submit_s[0])
    start_s = np.full(len(jobs), math.nan)
    ends: list[tuple[float, int]] = []
    held: dict[int, list[Range]] = {}
    arrived = ended = 0
    last_submit_s = submit_s[-1]
    while ended < len(jobs):
        next_submit_s = submit_s[arrived] if arrived < len(jobs) else math.inf
        next_end_s = ends[0][0] if ends else math.inf
        now_s = min(next_submit_s, next_end_s, policy.wake_s())
        while ends and ends[0][0] == now_s:
            _, job = heapq.heappop(ends)
            policy.end(job, now_s)
            free.vacate(held.pop(job), now_s)
            ended += 1
            if progress is not None:
                progress(ended)
        while arrived < len(jobs) and submit_s[arrived] == now_s:
            policy.submit(arrived, now_s)
            arrived += 1
        for job in policy.choose(now_s):
            start_s[job] = now_s
            held[job] = free.occupy(width[job], now_s)
            heapq.heappush(ends, (now_s + run_s[job], job))
        free.set_expected_ends(policy.plan(now_s), now_s)
    last_end_s = float(np.max(start_s + run_s))
    recorded = recorded_metrics(log, machine)
    shared = recorded is not None and recorded.utilisation > 1
    return QueueResult(
        log=log,
        nodes=machine,
        scheduler=scheduler,
        start_s=start_s,
        windows=free.windows(last_end_s).between(submit_s[0], last_submit_s),
        metrics=measure(log, machine, start_s),
        notes=(
            *log.notes,
            *count_note(
                sum(job.requested_s is None for job in jobs), "Jobs without a requested time, given their run time"
            ),
            *count_note(
                sum(run > asked for asked, run in zip(asked_s, run_s, strict=True)),
                "Jobs that ran longer than they asked for, taken to have asked for their run time",
            ),
            *(["The log's jobs shared nodes; here each has its nodes to itself, so the queue is longer."] * shared),
        ),
    )


def measure(log: BatchLog, machine: int, start_s: Floats) -> QueueMetrics:
    """The metrics of a schedule of `log`'s jobs."""
    submit = np.array([job.submit_s for job in log.jobs])
    run = np.array([job.run_s for job in log.jobs])
    width = np.array([job.nodes for job in log.jobs], np.float64)
    wait = start_s - submit
    slowdown = np.maximum(1.0, (wait + run) / np.maximum(run, SLOWDOWN_BOUND_S))
    makespan_s = float(np.max(start_s + run) - np.min(submit))
    return QueueMetrics(
        jobs=len(log.jobs),
        mean_wait_s=float(wait.mean()),
        median_wait_s=float(np.median(wait)),
        max_wait_s=float(wait.max()),
        mean_bounded_slowdown=float(slowdown.mean()),
        utilisation=float((width * run).sum() / (machine * makespan_s)),
        makespan_s=makespan_s,
    )


def recorded_metrics(log: BatchLog, machine: int) -> QueueMetrics | None:
    """The same metrics of the starts that the log records; None where it lacks any."""
    starts = [job.start_s for job in log.jobs if job.start_s is not None]
    return measure(log, machine, np.array(starts)) if len(starts) == len(log.jobs) else None
