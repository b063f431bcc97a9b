"""Nodes on which starts fail: whether the node or the job is at fault, and which nodes are set aside.

A script that cannot start fails on every node; a bad node fails every script. So a failed start counts against the node
if its job runs well on other nodes and has failed to start on none of them; otherwise against the job. A node on which
several starts in a row failed is set aside: released, and not claimed for a while. Only starts of scripts that have
trained count for that, because two scripts with mistakes prove nothing about a node.

A job that has never trained, and fails to start, is tried on another node if one is free: so a bad node cannot fail one
new job after the other. Nodes on which starts have failed lately are given to jobs last.
"""

from __future__ import annotations

from offcut.control.event_context import EventContext
from offcut.control.state import FailedStart, JobState, State
from offcut.plaintext import visible

#: How many failed starts of each node are kept.
_KEPT = 8


def note(context: EventContext, node: str, job: str, reason: str) -> None:
    """Note that a worker of `job` ended before its first step on this node. No job: the node itself did not boot."""
    state = context.state
    proven = job not in state.jobs or _has_trained(state, state.jobs[job])
    starts = [*_recent(state, node), FailedStart(context.now_s, job, visible(reason), proven)]
    state.failed_starts = {name: recent for name in state.failed_starts if (recent := _recent(state, name))}
    state.failed_starts[node] = starts[-_KEPT:]


def forgive(state: State, node: str) -> None:
    """Forget the failed starts on the node: a worker took its first step there."""
    state.failed_starts.pop(node, None)


def is_node_at_fault(state: State, node: str, job: JobState) -> bool:
    """Return whether the node, and not the job, is at fault for this failed start."""
    well = any(state.nodes[name].worker in ("ready", "member") for name in job.nodes if name != node)
    return well and not any(
        start.job == job.job.id for name in state.failed_starts if name != node for start in _recent(state, name)
    )


def has_failed_lately(state: State, node: str) -> bool:
    """Return whether a start has failed on the node lately, whatever was at fault."""
    return bool(_recent(state, node))


def is_another_node_free(state: State, job: JobState) -> bool:
    """Return whether a job that has never trained can be tried on a free node on which no start has failed lately."""
    return not _has_trained(state, job) and any(not has_failed_lately(state, name) for name in state.free)


def is_bad(state: State, node: str, *, its_fault: bool) -> bool:
    """Return whether to set the node aside: it was at fault several times, or several jobs could not start there."""
    starts = _proven(state, node)
    several = its_fault or len({start.job for start in starts}) > 1
    return several and len(starts) >= state.settings.forgiven_starts


def reason(state: State, node: str) -> str:
    starts = _proven(state, node)
    last = starts[-1]
    whose = f", of {last.job}" if last.job else ""
    return f"{len(starts)} starts in a row failed on it; the last{whose}: {last.reason}"


def wait_s(state: State, node: str) -> float:
    """Return how long to wait before the next start on the node, in seconds."""
    return state.settings.retry_wait_s * 2.0 ** max(0, len(_recent(state, node)) - 1)


def _has_trained(state: State, job: JobState) -> bool:
    family = job.job.family
    return job.trained_since_s is not None or (
        family is not None
        and any(other.trained_since_s is not None for other in state.jobs.values() if other.job.family == family)
    )


def _proven(state: State, node: str) -> list[FailedStart]:
    """Return the failed starts of scripts that have trained, before them or since, elsewhere."""

    def trained(start: FailedStart) -> bool:
        job = state.jobs.get(start.job)
        return job is not None and _has_trained(state, job)

    return [start for start in _recent(state, node) if start.proven or trained(start)]


def _recent(state: State, node: str) -> list[FailedStart]:
    since_s = state.now_s - state.settings.aside_s
    return [start for start in state.failed_starts.get(node, ()) if start.time_s >= since_s]
