"""Counts what the controller's events say: releases, jobs, workers, and the time that each event takes."""

from __future__ import annotations

from collections import Counter

from offcut.control import State
from offcut.histogram import Histogram
from offcut.model import events
from offcut.service.metrics.node_use import NodeUse
from offcut.service.metrics.release_times import ReleaseTimes

_EVENT_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class EventMetrics:
    """What happened since this controller began. It reads the state that it is given, and changes nothing."""

    def __init__(self, state: State, now_s: float) -> None:
        self._state = state
        self.node_use = NodeUse(now_s)
        self.releases = ReleaseTimes()
        self.event_seconds = Histogram(_EVENT_BOUNDS_S)
        self.events: Counter[str] = Counter(answered=0, skipped=0)
        self.submitted = 0
        #: Jobs that ended, by how; workers that ended, by how.
        self.ended: Counter[str] = Counter(finished=0, failed=0, cancelled=0)
        self.workers_ended: Counter[str] = Counter(left=0, finished=0, failed=0, lost=0)
        self.redone_steps = 0
        self.refused_claims = 0
        self.lost_nodes = 0
        self._ended_before = set(state.ended)
        self._last_ended = next(reversed(state.ended), None)

    def before(self, event: events.Event) -> None:
        """Count an event that is about to be answered."""
        self.node_use.advance(self._state, event.time_s)
        for part in event.events if isinstance(event, events.EventsGathered) else (event,):
            self._count(part)

    def after(self, took_s: float, answered: bool) -> None:
        """Count how an event was answered.

        Args:
            took_s: until its effects had been started, in seconds.
            answered: False: it could not be answered.
        """
        self.event_seconds.observe(took_s)
        self.events["answered" if answered else "skipped"] += 1
        self._count_ended()

    def agent_left(self, node: str, now_s: float) -> None:
        """Note that a node's agent has closed its connection: it has ended its workers, and exits."""
        self.releases.released(node, now_s)

    def _count(self, event: events.Event) -> None:
        match event:
            case events.NodesChanged():
                self._count_nodes(event)
            case events.ClaimRefused():
                self.refused_claims += len(event.nodes)
            case events.JobSubmitted():
                self.submitted += 1
            case events.WorkerExited():
                self.workers_ended[event.outcome] += 1
            case events.GenerationFormed():
                self.redone_steps += event.redone

    def _count_nodes(self, event: events.NodesChanged) -> None:
        for node in event.wanted:
            if self._is_held(node):
                self.releases.wanted(node, event.time_s)
        for node in event.lost:
            if not self.releases.released(node, event.time_s) and self._is_held(node):
                self.lost_nodes += 1
        for offer in event.offered:  # a node that is offered is not held, whatever was said before
            self.releases.released(offer.node, event.time_s)

    def _is_held(self, node: str) -> bool:
        found = self._state.nodes.get(node)
        return found is not None and found.phase != "idle"

    def _count_ended(self) -> None:
        """Count the jobs that have ended since the last event. Older ones may have left the state meanwhile."""
        last = next(reversed(self._state.ended), None)
        if last == self._last_ended:
            return
        self._last_ended = last
        for job_id in self._state.ended.keys() - self._ended_before:
            job = self._state.jobs.get(job_id)
            if job is not None:
                self.ended[job.phase] += 1
        self._ended_before = set(self._state.ended)
