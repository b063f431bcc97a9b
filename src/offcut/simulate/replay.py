"""Replays windows and jobs through the controller that runs live, and measures the result."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from offcut.allocate import exact, policy
from offcut.allocate.solve import solve
from offcut.errors import InputError
from offcut.simulate.event_loop import EventLoop, Solver
from offcut.simulate.job_arrivals import JobArrivals
from offcut.simulate.metrics import ReplayMetrics, measure
from offcut.simulate.options import ReplayOptions, ResizeCost
from offcut.traces.job_list import ListedJob
from offcut.traces.windows import Windows

#: Time (s), nodes that become idle with the known ends of their windows, and wanted nodes.
Change = tuple[float, list[tuple[str, float | None]], tuple[str, ...]]


def replay(
    windows: Windows,
    jobs: Sequence[ListedJob],
    options: ReplayOptions,
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    compare: bool = True,
    progress: Callable[[float], None] | None = None,
) -> ReplayMetrics:
    """Replay jobs on idle windows.

    Args:
        windows: the idle windows.
        jobs: the job list.
        options: the assumptions.
        start_s: the start of the replayed time, in seconds; None: the first submission.
        end_s: its end, in seconds; None: the end of the last window.
        compare: True: also run the same jobs on a static machine of equal node-time, for the efficiency Us.
        progress: called from time to time with the share that is done.

    Returns:
        The metrics.

    Raises:
        InputError: no node is idle in that time, or the job list is empty.
    """
    start_s, end_s = span(windows, jobs, start_s, end_s)
    part = windows.between(start_s, end_s)
    if not len(part):
        raise InputError(
            f"replay: no node is idle from {start_s:g} to {end_s:g} s.",
            next_step=f"The windows span {windows.span_s[0]:g} to {windows.span_s[1]:g} s.",
        )
    if not jobs:
        raise InputError("replay: the job list is empty.", next_step="List at least one job.")
    solver = solver_of(options.policy)
    began = time.process_time()
    loop = EventLoop(JobArrivals(jobs, repeat=options.repeat), solver, options, start_s)
    with without_collection():
        instants = run_windows(loop, part, start_s, end_s, progress)
        loop.run_until(end_s)
    loop.finish(end_s)
    cpu_s = time.process_time() - began
    static = static_rate(jobs, options, loop.accounts.idle_s / (end_s - start_s), end_s - start_s) if compare else None
    return measure(loop, options, start_s, end_s, instants=instants, cpu_s=cpu_s, static_rate=static)


def run_windows(
    loop: EventLoop,
    windows: Windows,
    start_s: float,
    end_s: float,
    progress: Callable[[float], None] | None = None,
    ended: Callable[[], bool] | None = None,
) -> int:
    """Let nodes come and go as the windows say.

    Args:
        loop: the replay's loop.
        windows: the windows of the replayed time.
        start_s: its start, in seconds.
        end_s: its end, in seconds.
        progress: called from time to time with the share that is done.
        ended: returns whether the replay may end before the windows do.

    Returns:
        The number of instants at which windows began or ended.
    """
    instants = 0
    for at_s, offered, wanted in _changes(windows):
        if at_s >= end_s:
            break
        loop.run_until(at_s)
        if ended is not None and ended():
            break
        loop.instant(at_s, offered, wanted)
        instants += 1
        if progress is not None and instants % 256 == 0:
            progress((at_s - start_s) / (end_s - start_s))
    return instants


@contextmanager
def without_collection() -> Iterator[None]:
    """Switch garbage collection off.

    Events and effects have no reference cycles, and the search takes a tenth of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def span(
    windows: Windows, jobs: Sequence[ListedJob], start_s: float | None, end_s: float | None
) -> tuple[float, float]:
    """Return the time to replay.

    Args:
        windows: the idle windows.
        jobs: the job list.
        start_s: the wanted start, in seconds; None: the first submission.
        end_s: the wanted end, in seconds; None: the end of the last window.

    Returns:
        Start and end, in seconds.

    Raises:
        InputError: the interval is empty.
    """
    first_s, last_s = windows.span_s
    if start_s is None:
        start_s = min(max(first_s, min((job.submit_s for job in jobs), default=first_s)), last_s)
    if end_s is None:
        end_s = last_s
    if not end_s > start_s:
        raise InputError(
            f"replay: the interval from {start_s:g} to {end_s:g} s is empty.",
            next_step=f"Give --start before --end; the windows span {first_s:g} to {last_s:g} s.",
        )
    return start_s, end_s


def static_rate(jobs: Sequence[ListedJob], options: ReplayOptions, nodes: float, span_s: float) -> float:
    """Return the rate of the same jobs on dedicated nodes with free resizes.

    Jobs are allocated by the exact solver. A list that is not repeated is submitted at the start, and its rate is its
    work divided by the time until its last job ends.

    Args:
        jobs: the job list.
        options: the assumptions of the replay to compare with.
        nodes: the number of dedicated nodes; the rate is interpolated between whole numbers.
        span_s: the length of the time, in seconds.

    Returns:
        Work per second, in one-node rates.
    """
    free = replace(options, policy="exact", cost=ResizeCost(grow_s=0.0, shrink_s=0.0), accounting="stall", commit_s=0.0)
    low = math.floor(nodes)
    rates = []
    for count in (low, low + 1):
        if count == 0:
            rates.append(0.0)
            continue
        loop = EventLoop(
            JobArrivals([replace(job, submit_s=0.0) for job in jobs], repeat=options.repeat), solve, free, 0
        )
        loop.instant(0.0, [(f"n{i}", None) for i in range(count)])
        while loop.next_s() < span_s and (options.repeat or loop.busy):
            loop.instant(loop.next_s())
        last_s = span_s if options.repeat or loop.busy else max(loop.now_s, 1e-9)
        loop.finish(last_s)
        rates.append(sum(training.work for training in loop.trainings.values()) / last_s)
    return rates[0] + (nodes - low) * (rates[1] - rates[0])


def solver_of(name: str) -> Solver:
    """Return the function that solves the controller's allocation problems.

    Args:
        name: `exact`, a policy's name, or `FILE.py:FUNCTION`.
    """
    if name == "exact":
        exact.warm()
        return solve
    return partial(solve, policy=policy.load(name), policy_name=name)


def _changes(windows: Windows) -> Iterator[Change]:
    """Yield the changes of each instant in order: nodes that become idle with the known ends of their windows, and
    wanted nodes.
    """
    names = windows.names
    by_end = np.argsort(windows.end_s, kind="stable")
    times = np.unique(np.concatenate((windows.start_s, windows.end_s)))
    from_start = np.searchsorted(windows.start_s, times, "left").tolist()
    to_start = np.searchsorted(windows.start_s, times, "right").tolist()
    ends = windows.end_s[by_end]
    from_end = np.searchsorted(ends, times, "left").tolist()
    to_end = np.searchsorted(ends, times, "right").tolist()
    started, ended = windows.node, windows.node[by_end]
    expected = windows.expected_end_s
    for i, at_s in enumerate(times.tolist()):
        rows = slice(from_start[i], to_start[i])
        offered: list[tuple[str, float | None]]
        if expected is None:
            offered = [(names[n], None) for n in started[rows].tolist()]
        else:
            known = zip(started[rows].tolist(), expected[rows].tolist(), strict=True)
            offered = [(names[n], None if math.isnan(until_s) else until_s) for n, until_s in known]
        yield at_s, offered, tuple([names[n] for n in ended[from_end[i] : to_end[i]].tolist()])
