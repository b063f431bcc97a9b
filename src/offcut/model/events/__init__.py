"""The events that the controller answers. An event carries its time, in seconds since 1970.

- `nodes`: nodes and their agents
- `workers`: the workers of jobs, and the generations that they form
- `training`: the progress and the speed of jobs
- `requests`: what users and operators ask for
- `sweeps`: sweeps and their trials
- `controller`: its start and end, its timers, its solver's answers

One event carries everything of its kind that happened at one instant: on a large machine dozens of nodes come and go
together. `JobProgressed` is the only one that the journal does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from offcut.model.events.controller import (
    ControllerStarted,
    ControllerStopping,
    JobGeneration,
    LeaseChecked,
    Purpose,
    Solved,
    SolveFailed,
    Timer,
    TimerFired,
)
from offcut.model.events.nodes import (
    AgentReported,
    ClaimRefused,
    NodesBooted,
    NodesChanged,
    NodesHeld,
    Offer,
    RunningWorker,
)
from offcut.model.events.requests import (
    ClaimingResumed,
    JobCancelled,
    JobChanged,
    JobPaused,
    JobResumed,
    JobsForgotten,
    JobSubmitted,
    NodesForgiven,
    ReleaseAsked,
)
from offcut.model.events.sweeps import (
    JobStateCopied,
    ObjectiveReport,
    ObjectivesRead,
    SchedulerAnswered,
    SweepCancelled,
    SweepExtended,
    SweepForgotten,
    SweepPaused,
    SweepResumed,
    SweepSubmitted,
    TrialSuggested,
)
from offcut.model.events.training import (
    JobMeasured,
    JobNearsEnd,
    JobNoted,
    JobProgressed,
    JobTrained,
)
from offcut.model.events.workers import (
    GenerationBroken,
    GenerationFormed,
    Member,
    Outcome,
    WorkerExited,
    WorkersReady,
)

__all__ = [
    "AgentReported",
    "ClaimRefused",
    "ClaimingResumed",
    "ControllerStarted",
    "ControllerStopping",
    "Event",
    "EventsGathered",
    "GatheredEvent",
    "GenerationBroken",
    "GenerationFormed",
    "JobCancelled",
    "JobChanged",
    "JobGeneration",
    "JobMeasured",
    "JobNearsEnd",
    "JobNoted",
    "JobPaused",
    "JobProgressed",
    "JobResumed",
    "JobStateCopied",
    "JobSubmitted",
    "JobTrained",
    "JobsForgotten",
    "LeaseChecked",
    "Member",
    "NodesBooted",
    "NodesChanged",
    "NodesForgiven",
    "NodesHeld",
    "ObjectiveReport",
    "ObjectivesRead",
    "Offer",
    "Outcome",
    "Purpose",
    "ReleaseAsked",
    "RunningWorker",
    "SchedulerAnswered",
    "SolveFailed",
    "Solved",
    "SweepCancelled",
    "SweepExtended",
    "SweepForgotten",
    "SweepPaused",
    "SweepResumed",
    "SweepSubmitted",
    "Timer",
    "TimerFired",
    "TrialSuggested",
    "WorkerExited",
    "WorkersReady",
]

#: The events that are gathered where many come within a moment.
GatheredEvent = NodesChanged | NodesBooted | WorkersReady | WorkerExited


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsGathered:
    """Events that came within a moment, in their order. They are answered as one: with one generation of each job that
    they change, and one allocation problem."""

    time_s: float
    events: tuple[GatheredEvent, ...]
    kind: Literal["events_gathered"] = "events_gathered"


Event = (
    ControllerStarted
    | ControllerStopping
    | LeaseChecked
    | NodesChanged
    | NodesHeld
    | ClaimRefused
    | NodesBooted
    | AgentReported
    | WorkersReady
    | WorkerExited
    | GenerationFormed
    | GenerationBroken
    | JobNearsEnd
    | JobTrained
    | JobSubmitted
    | JobProgressed
    | JobMeasured
    | JobNoted
    | JobCancelled
    | JobPaused
    | JobResumed
    | JobChanged
    | ReleaseAsked
    | ClaimingResumed
    | JobsForgotten
    | NodesForgiven
    | ObjectivesRead
    | SweepCancelled
    | SweepExtended
    | SweepForgotten
    | SweepPaused
    | SweepResumed
    | SweepSubmitted
    | TrialSuggested
    | JobStateCopied
    | SchedulerAnswered
    | Solved
    | SolveFailed
    | TimerFired
    | EventsGathered
)
