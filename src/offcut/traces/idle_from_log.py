"""The idle windows of a batch log: from the recorded node lists if there are any, else from the recorded counts.

From counts, one rule places jobs: a job takes the lowest-numbered free nodes when it starts; at one instant, ends come
before starts. Windows made so have the true idle count at any time, while their lengths depend on the rule.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from offcut.errors import InputError
from offcut.traces.batch_log import BatchJob, BatchLog, count_note
from offcut.traces.free_nodes import FreeNodes, Range
from offcut.traces.windows import Windows


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRecord:
    """The windows of `nodes` nodes in `[start_s, end_s)` of a log's clock, and the rule by which they were found."""

    windows: Windows
    nodes: int
    start_s: float
    end_s: float
    rule: str
    notes: tuple[str, ...] = ()

    def from_zero(self) -> Windows:
        """Return the windows on a clock that is 0 at `start_s`."""
        w = self.windows
        expected = None if w.expected_end_s is None else w.expected_end_s - self.start_s
        return Windows(w.names, w.node, w.start_s - self.start_s, w.end_s - self.start_s, expected)


def idle_windows(
    log: BatchLog, nodes: int | None = None, start_s: float | None = None, end_s: float | None = None
) -> IdleRecord:
    """Find the idle windows of a log.

    Args:
        log: the jobs.
        nodes: the number of nodes of the machine, if the log does not name its nodes.
        start_s: the start of the interval, in seconds; None: the first start of a job.
        end_s: its end, in seconds; None: the last start of a job.

    Returns:
        The windows.

    Raises:
        InputError: the log records no starts, it names another number of nodes, or the interval is empty.
    """
    started = [job for job in log.jobs if job.start_s is not None]
    if not started:
        raise InputError(
            f"{log.source}: the log records no job's start.",
            next_step="Simulate the queue: offcut queue LOG --nodes N --windows W.csv.gz",
        )
    notes = [*log.notes, *count_note(len(log.jobs) - len(started), "Jobs without a recorded start, left out")]
    starts = [job.start_s for job in started if job.start_s is not None]
    first_s = min(starts) if start_s is None else start_s
    last_s = max(starts) if end_s is None else end_s
    if last_s <= first_s:
        raise InputError(
            f"{log.source}: the interval from {first_s:g} to {last_s:g} s is empty.",
            next_step="Give --start before --end.",
        )
    if all(job.node_list for job in started):
        windows, size = _from_lists(log.source, started, nodes, first_s, last_s)
        rule = "the recorded node lists"
    else:
        size = log.size(nodes)
        windows, short = _from_counts(started, size, first_s, last_s)
        rule = "recorded node counts, lowest-numbered free nodes first"
        notes += count_note(short, "Jobs that found fewer free nodes than they had in the log")
    return IdleRecord(windows=windows, nodes=size, start_s=first_s, end_s=last_s, rule=rule, notes=tuple(notes))


def _from_lists(
    source: str, jobs: list[BatchJob], nodes: int | None, start_s: float, end_s: float
) -> tuple[Windows, int]:
    names = sorted({host for job in jobs for host in job.node_list})
    if nodes is not None and nodes != len(names):
        raise InputError(
            f"{source}: {nodes} nodes were asked for, but the log names {len(names)} nodes.",
            next_step="Leave out --nodes.",
        )
    index = {name: i for i, name in enumerate(names)}
    node = np.array([index[host] for job in jobs for host in job.node_list], np.int64)
    widths = [len(job.node_list) for job in jobs]
    busy_from = np.repeat(np.array([job.start_s for job in jobs], np.float64), widths).clip(start_s, end_s)
    busy_to = np.repeat(np.array([job.end_s for job in jobs], np.float64), widths).clip(start_s, end_s)
    # An empty busy interval is added at both borders of each node, so that every idle time lies between two busy ones.
    every = np.arange(len(names))
    node = np.concatenate((node, every, every))
    busy_from = np.concatenate((busy_from, np.full(len(names), start_s), np.full(len(names), end_s)))
    busy_to = np.concatenate((busy_to, np.full(len(names), start_s), np.full(len(names), end_s)))
    order = np.lexsort((busy_to, busy_from, node))
    node, busy_from, busy_to = node[order], busy_from[order], busy_to[order]
    # The latest end so far, per node: a running maximum over all, with each node's times lifted above the last one's.
    lift = node * (end_s - start_s + 1)
    idle_from = np.maximum.accumulate(busy_to - start_s + lift) - lift + start_s
    gap = (node[1:] == node[:-1]) & (busy_from[1:] > idle_from[:-1])
    return Windows.from_indices(tuple(names), node[1:][gap], idle_from[:-1][gap], busy_from[1:][gap]), len(names)


def _from_counts(jobs: list[BatchJob], nodes: int, start_s: float, end_s: float) -> tuple[Windows, int]:
    """Return the windows, and the number of jobs that found too few free nodes (jobs overlap, or the machine was
    larger).
    """
    order = sorted(jobs, key=lambda job: job.start_s or 0.0)
    free = FreeNodes(nodes, min(start_s, order[0].start_s or 0.0))
    running: list[tuple[float, int, list[Range]]] = []
    short = 0
    for number, job in enumerate(order):
        now_s = job.start_s or 0.0
        if now_s >= end_s:
            break
        while running and running[0][0] <= now_s:
            ended_s, _, ranges = heapq.heappop(running)
            free.vacate(ranges, ended_s)
        short += free.free < job.nodes
        heapq.heappush(running, (now_s + job.run_s, number, free.occupy(job.nodes, now_s)))
    while running and running[0][0] < end_s:
        ended_s, _, ranges = heapq.heappop(running)
        free.vacate(ranges, ended_s)
    table = free.windows(end_s)
    recorded = Windows(table.names, table.node, table.start_s, table.end_s)
    return recorded.between(start_s, end_s), short
