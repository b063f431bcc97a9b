"""Turns agents' reports of running generations into events: measured throughput, slow nodes, unusable reports.

Nothing here survives a restart of the controller: the generations that run then are measured again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from offcut.advisor.stragglers import Stragglers
from offcut.advisor.throughput_meter import Segment, ThroughputMeter
from offcut.control import JobState, State, job_curves
from offcut.model import events
from offcut.wire import messages

#: A running job that has not reported its steps for this long is mentioned in its log.
_SILENT_S = 60.0
#: How long after a change of a job's speed it is known whether one of its nodes is slow: nodes report every 2 s, and
#: one is named after three reports.
_VERDICT_S = 8.0


@dataclass(slots=True)
class _Generation:
    number: int
    since_s: float
    meter: ThroughputMeter = field(default_factory=ThroughputMeter)
    stragglers: Stragglers = field(default_factory=Stragglers)
    reported: bool = False
    #: A change of speed, and since when it waits to know whether a node is slow.
    change: tuple[float, Segment] | None = None


class ThroughputReports:
    """Keeps one meter per job, for its newest generation. Every method yields the events that follow."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._generations: dict[str, _Generation] = {}
        self._told: set[tuple[str, str]] = set()

    def progress(self, now_s: float, message: messages.Progress) -> Iterator[events.Event]:
        found = self._find(now_s, message.job, message.generation)
        if found is None or message.clock_s is None:
            return
        job, generation = found
        generation.reported = True
        segment = generation.meter.add_report(message.clock_s, message.step, message.samples)
        if segment is not None and segment.changed:
            generation.change, segment = (now_s, segment), None
        elif generation.change is not None and now_s - generation.change[0] >= _VERDICT_S:
            segment, generation.change = generation.change[1], None
        if segment is not None:
            slow = max(generation.stragglers.slow, key=generation.stragglers.slow.__getitem__, default="")
            yield events.JobMeasured(
                time_s=now_s,
                job=message.job,
                generation=message.generation,
                size=job.size,
                rate=segment.rate,
                spread=segment.spread,
                stretches=segment.stretches,
                span_s=segment.span_s,
                settled=segment.settled,
                changed=segment.changed,
                slow_node=slow,
            )
        if generation.meter.problem:
            yield from self._note(
                now_s, message.job, f"{generation.meter.problem}: its curve cannot be learned from that"
            )

    def pace(self, now_s: float, node: str, message: messages.Pace) -> Iterator[events.Event]:
        found = self._find(now_s, message.job, message.generation)
        if found is None:
            return
        stragglers = found[1].stragglers
        slow = stragglers.add_report(node, message.own_step_s)
        if slow is not None:
            text = f"{slow} is slow: it works {stragglers.slow[slow]:.2g} times as long on a step as the other nodes"
            yield events.JobNoted(time_s=now_s, job=message.job, text=text)
            yield events.JobNoted(time_s=now_s, job=slow, text=f"slow in {message.job}: {text}")

    def silent(self, now_s: float) -> Iterator[events.Event]:
        """Report the jobs that run and have not reported a step for a while."""
        for job in list(self._state.jobs.values()):
            if job.phase != "running" or job.restarts:
                self._generations.pop(job.job.id, None)
                continue
            found = self._find(now_s, job.job.id, job.generation)
            if found is not None and not found[1].reported and now_s - found[1].since_s > _SILENT_S:
                text = f"it has reported no step for {_SILENT_S:g} s: its scaling cannot be measured"
                yield from self._note(now_s, job.job.id, text)

    def forget(self, job: str) -> None:
        """Drop what is kept of a job that has left the state."""
        self._generations.pop(job, None)
        self._told = {told for told in self._told if told[0] != job}

    def _find(self, now_s: float, job_id: str, number: int) -> tuple[JobState, _Generation] | None:
        job = self._state.jobs.get(job_id)
        if job is None or number != job.generation or not job.members or not job_curves.measures(self._state):
            return None
        generation = self._generations.get(job_id)
        if generation is None or generation.number != number:
            generation = self._generations[job_id] = _Generation(number, now_s)
        return job, generation

    def _note(self, now_s: float, job: str, text: str) -> Iterator[events.Event]:
        if (job, text) not in self._told:
            self._told.add((job, text))
            yield events.JobNoted(time_s=now_s, job=job, text=text)
