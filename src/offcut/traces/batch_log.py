"""The rigid jobs of a batch log, whichever format it was read from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from offcut.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """One job of the main queue. Times are seconds on the log's clock.

    `start_s` is the recorded start, None if the log has none. `requested_s` is the wall time that the user asked
    for, None if unknown. `node_list` are the names of its nodes, if the log records them.
    """

    id: str
    submit_s: float
    run_s: float
    nodes: int
    start_s: float | None = None
    requested_s: float | None = None
    node_list: tuple[str, ...] = ()

    @property
    def end_s(self) -> float | None:
        return None if self.start_s is None else self.start_s + self.run_s


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLog:
    """The jobs of one log in the order in which they were submitted.

    `machine` is the machine's size if the log states it, in the unit of the jobs' `nodes`; `unit` says what that
    unit is. `notes` are sentences that say what the reader left out or corrected.
    """

    source: str
    jobs: tuple[BatchJob, ...]
    unit: str = "nodes"
    machine: int | None = None
    notes: tuple[str, ...] = ()

    def in_nodes(self, per_node: int) -> BatchLog:
        """Return the log counted in nodes of `per_node` units each; a job has whole nodes."""
        if per_node < 1:
            raise InputError(f"per node: {per_node} {self.unit} do not make a node.", next_step="Give at least 1.")
        if per_node == 1:
            return self
        jobs = tuple(job if job.node_list else replace(job, nodes=math.ceil(job.nodes / per_node)) for job in self.jobs)
        machine = None if self.machine is None else math.ceil(self.machine / per_node)
        return replace(self, jobs=jobs, machine=machine, unit="nodes")

    def size(self, nodes: int | None) -> int:
        """Return the machine's size: `nodes` if given, else what the log states, else the size of its largest job."""
        widest = max(self.jobs, key=lambda job: job.nodes)
        if nodes is None:
            return max(self.machine or 0, widest.nodes)
        if nodes < widest.nodes:
            raise InputError(
                f"{self.source}: job {widest.id} needs {widest.nodes} {self.unit}, but the machine has {nodes}.",
                next_step=f"Give --nodes {widest.nodes} or more.",
            )
        return nodes


def make_log(
    source: str, jobs: Iterable[BatchJob], *, unit: str = "nodes", machine: int | None = None, notes: Iterable[str] = ()
) -> BatchLog:
    """Make a log of jobs, which are put in the order of submission.

    If every job names its nodes, the log counts nodes, and the machine is all nodes that are named.

    Args:
        source: the name of the log, for messages.
        jobs: the jobs.
        unit: the unit of the jobs' `nodes`.
        machine: the machine's size, if the log states it.
        notes: what the reader left out or corrected.

    Returns:
        The log.

    Raises:
        InputError: no job ran.
    """
    ordered = tuple(sorted(jobs, key=lambda job: job.submit_s))
    notes = tuple(notes)
    if not ordered:
        raise InputError(
            f"{source}: no job in it ran. {' '.join(notes)}".rstrip(),
            next_step="Jobs need a submit time, a run time and a node count.",
        )
    if all(job.node_list for job in ordered):
        unit, machine = "nodes", len({node for job in ordered for node in job.node_list})
    return BatchLog(source=source, jobs=ordered, unit=unit, machine=machine, notes=notes)


def count_note(count: int, what: str) -> list[str]:
    """Return the note `what: count` in a list, or an empty list if the count is 0."""
    return [f"{what}: {count:,}."] if count else []
