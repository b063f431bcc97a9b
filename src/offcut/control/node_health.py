"""Nodes on which starts fail: whose fault that is, and which nodes are set aside for it.

A script that cannot start fails everywhere, a bad node fails every script. So a failed start is held against the node
while its job is well on other nodes and has failed to start on none of them; else against the job. A node that has
failed several starts in a row is set aside: released, and not claimed for a while.
"""

from __future__ import annotations

from offcut.control.event_context import EventContext
from offcut.control.state import FailedStart, JobState, State
from offcut.plaintext import visible

#: Of each node no more than so many failed starts are kept.
_KEPT = 8


def note(context: EventContext, node: str, job: str, reason: str) -> None:
    """A worker of `job` ended before its first step on this node; no job: the node itself did not come up."""
    starts = [*_recent(context.state, node), FailedStart(context.now_s, job, visible(reason))]
    context.state.failed_starts[node] = starts[-_KEPT:]


def forgive(state: State, node: str) -> None:
    """A worker took its first step there."""
    state.failed_starts.pop(node, None)


def is_node_s_fault(state: State, node: str, job: JobState) -> bool:
    """Whether the failed start of this job on this node says more about the node than about the job."""
    well = any(state.nodes[name].worker in ("ready", "member") for name in job.nodes if name != node)
    return well and not any(
        start.job == job.job.id for name in state.failed_starts if name != node for start in _recent(state, name)
    )


def is_bad(state: State, node: str, *, its_fault: bool) -> bool:
    """Whether to give the node up: its fault again and again, or no job of several could start there."""
    starts = _recent(state, node)
    several = its_fault or len({start.job for start in starts}) > 1
    return several and len(starts) >= state.settings.forgiven_starts


def reason(state: State, node: str) -> str:
    starts = _recent(state, node)
    last = starts[-1]
    whose = f", of {last.job}" if last.job else ""
    return f"{len(starts)} starts in a row failed on it; the last{whose}: {last.reason}"


def wait_s(state: State, node: str) -> float:
    """How long to wait before the next start on the node."""
    return state.settings.retry_wait_s * 2.0 ** max(0, len(_recent(state, node)) - 1)


def _recent(state: State, node: str) -> list[FailedStart]:
    since_s = state.now_s - state.settings.aside_s
    return [start for start in state.failed_starts.get(node, ()) if start.time_s >= since_s]
