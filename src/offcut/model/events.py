"""The events that the controller answers. An event carries its time, in seconds since 1970.

One event carries everything of its kind that happened at one instant: on a large machine dozens of nodes come and go
together. `JobProgressed` is the only one that the journal does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from offcut.model.allocation import Allocation
from offcut.model.job import Job
from offcut.model.sizes import Sizes

#: How a worker ended. `left`: at a step boundary, as it was told or because its node is wanted. `finished`: the script
#: came to its end. `failed`: the script raised or returned an exit code. `lost`: it died, froze, or its node went.
Outcome = Literal["left", "finished", "failed", "lost"]


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A job's workers on one node. The incarnation tells a worker from those that ran on the same node before it."""

    node: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Offer:
    """An idle node that may be claimed; `until_s` is the known end of its window, None where it is not known."""

    node: str
    until_s: float | None = None


#: What happens when a timer fires. The subject is a node:
#: `boot`: its agent has not answered in time; `ready`: its worker has not reported ready in time; `retry`: its worker
#: is started again; `hold`: no job has wanted it, so that it is released; `leaving`: the queue has not wanted it after
#: all; `set_aside`: it may be claimed again.
#: The subject is a job:
#: `join`, `relaunch`: it waits no longer for workers that are starting, or after a failure; `renew`: its generation
#: broke and is set again; `depart`: the last holders of its state had their time to save it; `probe`: a size could not
#: be measured in time; `finish`: its script has not come to its end in time.
#: No subject: `solve_again`: the solver is asked again.
Purpose = Literal[
    "boot",
    "ready",
    "retry",
    "hold",
    "leaving",
    "set_aside",
    "join",
    "relaunch",
    "renew",
    "depart",
    "probe",
    "finish",
    "solve_again",
]


@dataclass(frozen=True, slots=True)
class Timer:
    """Names one timer. `subject` is a node or a job; `incarnation` that of the node's worker, where it is about one."""

    purpose: Purpose
    subject: str = ""
    incarnation: int = 0


@dataclass(frozen=True, slots=True)
class JobGeneration:
    """The newest generation of a job."""

    job: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStarted:
    """The controller started. The journal may be older: these numbers have been given, as is known from elsewhere."""

    time_s: float
    incarnation: int = 0
    generations: tuple[JobGeneration, ...] = ()
    kind: Literal["controller_started"] = "controller_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStopping:
    """The controller was told to end: every node is released, and nothing is claimed until one starts again."""

    time_s: float
    kind: Literal["controller_stopping"] = "controller_stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesChanged:
    """Nodes became idle, were wanted back by the queue, or vanished."""

    time_s: float
    offered: tuple[Offer, ...] = ()
    wanted: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    kind: Literal["nodes_changed"] = "nodes_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRefused:
    """The batch system did not give us these nodes."""

    time_s: float
    nodes: tuple[str, ...]
    reason: str
    kind: Literal["claim_refused"] = "claim_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesBooted:
    """The agents of these claimed nodes answer, and run no worker yet."""

    time_s: float
    nodes: tuple[str, ...]
    kind: Literal["nodes_booted"] = "nodes_booted"


@dataclass(frozen=True, slots=True)
class RunningWorker:
    """A job's workers that an agent says it runs."""

    job: str
    incarnation: int
    ready: bool
    #: The newest generation of the job that it has heard of; 0: of none.
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReported:
    """An agent came back after its connection had been cut, and says what it runs."""

    time_s: float
    node: str
    workers: tuple[RunningWorker, ...]
    #: The highest that the agent has ever started.
    incarnation: int = 0
    kind: Literal["agent_reported"] = "agent_reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersReady:
    """All ranks of these members have booted: a generation may include them."""

    time_s: float
    job: str
    members: tuple[Member, ...]
    kind: Literal["workers_ready"] = "workers_ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExited:
    """A job's workers on one node have ended; `generation`, `stable_step`, `samples` are the last that they reported.

    `disk` says how the disk of the job's files made them fail, where it did: that is not held against the job."""

    time_s: float
    job: str
    member: Member
    outcome: Outcome
    detail: str = ""
    generation: int = 0
    stable_step: int = 0
    samples: int = 0
    disk: str = ""
    kind: Literal["worker_exited"] = "worker_exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFormed:
    """The members of a generation did their first step in it, `took_s` after the controller set it."""

    time_s: float
    job: str
    generation: int
    took_s: float
    step: int
    #: How many reported steps are done again, because no member that had done them was left.
    redone: int = 0
    #: What the job's script trains, as `offcut.torch` hashed it; empty: not said.
    fingerprint: str = ""
    kind: Literal["generation_formed"] = "generation_formed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNearsEnd:
    """At its present rate the job will have trained in `left_s` seconds: see `control.nears_end`."""

    time_s: float
    job: str
    left_s: float = 0.0
    kind: Literal["job_nears_end"] = "job_nears_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrained:
    """The members of `generation` have passed the job's last step; their scripts run to their end."""

    time_s: float
    job: str
    generation: int
    #: Of the whole training; 0: not said.
    step: int = 0
    samples: int = 0
    kind: Literal["job_trained"] = "job_trained"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationBroken:
    """A member could not go on in its generation and waits for a newer one."""

    time_s: float
    job: str
    generation: int
    member: Member
    detail: str = ""
    kind: Literal["generation_broken"] = "generation_broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    time_s: float
    job: Job
    kind: Literal["job_submitted"] = "job_submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgressed:
    """The job's stable steps and samples so far, and the loss of the last of them. Not journalled."""

    time_s: float
    job: str
    generation: int
    step: int
    samples: int
    loss: float
    kind: Literal["job_progressed"] = "job_progressed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMeasured:
    """A segment of training in one generation of `size` nodes: see `advisor.throughput_meter.Segment`."""

    time_s: float
    job: str
    generation: int
    size: int
    #: Samples/s of the whole job, and its deviation relative to that.
    rate: float
    spread: float = 0.0
    stretches: int = 1
    #: Seconds from the generation's first step to this.
    span_s: float = 0.0
    settled: bool = True
    changed: bool = False
    #: A node that slows the whole generation down; empty if none is known.
    slow_node: str = ""
    kind: Literal["job_measured"] = "job_measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNoted:
    """A message for the job's user: a checkpoint could not be written, for example."""

    time_s: float
    job: str
    text: str
    kind: Literal["job_noted"] = "job_noted"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    time_s: float
    job: str
    kind: Literal["job_cancelled"] = "job_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPaused:
    time_s: float
    job: str
    kind: Literal["job_paused"] = "job_paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResumed:
    time_s: float
    job: str
    kind: Literal["job_resumed"] = "job_resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChanged:
    """The user changed a live job; None leaves a field as it is."""

    time_s: float
    job: str
    sizes: Sizes | None = None
    weight: float | None = None
    kind: Literal["job_changed"] = "job_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAsked:
    """A user releases nodes now. No nodes named: all of them, and none is claimed again until this is undone."""

    time_s: float
    nodes: tuple[str, ...] = ()
    kind: Literal["release_asked"] = "release_asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimingResumed:
    """Undoes a release of all nodes."""

    time_s: float
    kind: Literal["claiming_resumed"] = "claiming_resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """The solver's answer to version `version` of the allocation problem.

    `late`: a newer version has been asked meanwhile; the answer is carried out if it is still allowed.
    """

    time_s: float
    version: int
    allocation: Allocation
    late: bool = False
    kind: Literal["solved"] = "solved"


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveFailed:
    time_s: float
    version: int
    reason: str
    kind: Literal["solve_failed"] = "solve_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    time_s: float
    timer: Timer
    kind: Literal["timer_fired"] = "timer_fired"


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
    | NodesChanged
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
    | Solved
    | SolveFailed
    | TimerFired
    | EventsGathered
)
