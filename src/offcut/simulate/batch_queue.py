"""The batch-queue simulator: when each job of a log would have started under a textbook scheduler.

Pure and event-driven. At one instant, ends come first, then submissions, then one decision. Started jobs take the
lowest-numbered free nodes, so the simulation also gives idle windows, with the ends that the queue expected.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from offcut.simulate.batch_schedulers import SCHEDULERS, Scheduler
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
        """Return the metrics by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueResult:
    """The result of a simulation: `start_s[i]` is the start of `log.jobs[i]`.

    `windows` are the idle windows between the first and the last submission. `notes` says what was assumed.
    """

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
    """Run the jobs of a log through a scheduler.

    The requested time of a job is at least its run time: a job without a request, or one that ran longer than it asked
    for, is simulated with its run time as its request (a note counts these jobs). So no job outlives its request, and
    every reservation holds.

    Args:
        log: the jobs.
        nodes: the number of nodes of the machine; None: what the log says.
        scheduler: `fcfs`, `easy` or `conservative`.
        progress: called with the number of jobs that have ended.

    Returns:
        The start of every job, the idle windows and the metrics.

    Raises:
        InputError: a job needs more nodes than the machine has.
    """
    machine = log.size(nodes)
    jobs = log.jobs
    submit_s = [job.submit_s for job in jobs]
    run_s = [job.run_s for job in jobs]
    asked_s = [run if job.requested_s is None else job.requested_s for job, run in zip(jobs, run_s, strict=True)]
    requested_s = [max(asked, run) for asked, run in zip(asked_s, run_s, strict=True)]
    width = [job.nodes for job in jobs]
    scheduler_state = SCHEDULERS[scheduler](machine, width, requested_s)
    free = FreeNodes(machine, submit_s[0])
    start_s = np.full(len(jobs), math.nan)
    ends: list[tuple[float, int]] = []
    held: dict[int, list[Range]] = {}
    arrived = ended = 0
    last_submit_s = submit_s[-1]
    while ended < len(jobs):
        next_submit_s = submit_s[arrived] if arrived < len(jobs) else math.inf
        next_end_s = ends[0][0] if ends else math.inf
        now_s = min(next_submit_s, next_end_s, scheduler_state.wake_s())
        while ends and ends[0][0] == now_s:
            _, job = heapq.heappop(ends)
            scheduler_state.end(job, now_s)
            free.vacate(held.pop(job), now_s)
            ended += 1
            if progress is not None:
                progress(ended)
        while arrived < len(jobs) and submit_s[arrived] == now_s:
            scheduler_state.submit(arrived, now_s)
            arrived += 1
        for job in scheduler_state.start_jobs(now_s):
            start_s[job] = now_s
            held[job] = free.occupy(width[job], now_s)
            heapq.heappush(ends, (now_s + run_s[job], job))
        free.set_expected_ends(scheduler_state.expected_free(now_s), now_s)
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
                sum(job.requested_s is None for job in jobs),
                "Jobs without a requested time, simulated with their run time",
            ),
            *count_note(
                sum(run > asked for asked, run in zip(asked_s, run_s, strict=True)),
                "Jobs that ran longer than they asked for, simulated with their run time as request",
            ),
            *(["The log's jobs shared nodes; here each has its nodes to itself, so the queue is longer."] * shared),
        ),
    )


def measure(log: BatchLog, machine: int, start_s: Floats) -> QueueMetrics:
    """Compute the metrics of a schedule.

    Args:
        log: the jobs.
        machine: the number of nodes of the machine.
        start_s: shape (jobs,), the start of each job, in seconds on the log's clock.

    Returns:
        Means over all jobs.
    """
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
    """Compute the metrics of the starts that the log records.

    Args:
        log: the jobs.
        machine: the number of nodes of the machine.

    Returns:
        Means over all jobs; None if the log lacks the start of a job.
    """
    starts = [job.start_s for job in log.jobs if job.start_s is not None]
    return measure(log, machine, np.array(starts)) if len(starts) == len(log.jobs) else None
