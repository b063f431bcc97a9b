"""The use of every node over time, computed by replaying the journal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from offcut.control import NodeState, State
from offcut.model.events import Event, GenerationFormed


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time of one node in one condition: `idle`, `held` (no work), `boots` or `trains` (for `job`)."""

    node: str
    start_s: float
    end_s: float
    condition: str
    job: str | None


@dataclass(slots=True)
class RunTimeline:
    """The use of nodes and jobs over time.

    Seconds since 1970; `sizes[job]` are (time_s, size), each valid until the next.
    """

    start_s: float = 0.0
    end_s: float = 0.0
    spans: list[Span] = field(default_factory=list)
    sizes: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    #: (time_s, job, took_s) of every generation that formed.
    formed: list[tuple[float, str, float]] = field(default_factory=list)
    #: How many steps of a job were done again, at least.
    redone_steps: dict[str, int] = field(default_factory=dict)

    def node_seconds(self, *conditions: str) -> float:
        """Return how long nodes were in the conditions, summed over nodes."""
        return sum(span.end_s - span.start_s for span in self.spans if span.condition in conditions)


def timeline(replay: Iterable[tuple[State, Event]]) -> RunTimeline:
    """Compute the timeline. `replay` yields the state after each event; see `Journal.replay`."""
    run = RunTimeline()
    open_spans: dict[str, tuple[float, str, str | None]] = {}
    for state, event in replay:
        now_s = state.now_s
        run.start_s = run.start_s or now_s
        run.end_s = now_s
        if isinstance(event, GenerationFormed) and event.took_s:
            run.formed.append((now_s, event.job, event.took_s))
        now = {name: _condition(node) for name, node in state.nodes.items()}
        for name in open_spans.keys() - now.keys():
            _close(run, open_spans, name, now_s)
        for name, (condition, job) in now.items():
            if name in open_spans and open_spans[name][1:] != (condition, job):
                _close(run, open_spans, name, now_s)
            open_spans.setdefault(name, (now_s, condition, job))
        for job_id, item in state.jobs.items():
            sizes = run.sizes.setdefault(job_id, [(item.submitted_s, 0)])
            if sizes[-1][1] != item.size:
                sizes.append((now_s, item.size))
            if item.redone_steps:
                run.redone_steps[job_id] = item.redone_steps
    for name in list(open_spans):
        _close(run, open_spans, name, run.end_s)
    return run


def _condition(node: NodeState) -> tuple[str, str | None]:
    if node.phase == "idle":
        return "idle", None
    if node.job is None:
        return "held", None
    return ("trains" if node.worker == "member" else "boots"), node.job


def _close(run: RunTimeline, open_spans: dict[str, tuple[float, str, str | None]], name: str, now_s: float) -> None:
    start_s, condition, job = open_spans.pop(name)
    if now_s > start_s:
        run.spans.append(Span(name, start_s, now_s, condition, job))
