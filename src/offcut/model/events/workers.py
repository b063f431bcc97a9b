"""Events about the workers of jobs and the generations that they form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: How a worker ended. `left`: at a step boundary, as it was told or because its node is wanted. `finished`: the script
#: came to its end. `failed`: the script raised or returned an exit code. `lost`: it died, froze, or its node went.
Outcome = Literal["left", "finished", "failed", "lost"]


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """A job's workers on one node. The incarnation tells a worker from those that ran on the same node before it."""

    node: str
    incarnation: int


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
    #: The exit code of the process that made them end so; minus the signal's number if one ended it.
    code: int | None = None
    kind: Literal["worker_exited"] = "worker_exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFormed:
    """The members of a generation did their first step in it, `took_s` after the controller set it."""

    time_s: float
    job: str
    generation: int
    took_s: float
    step: int
    #: How many steps are done again, at least: those that were reported, and that no member that is left had done.
    redone: int = 0
    #: The fingerprint of the job's script; empty: not said.
    fingerprint: str = ""
    kind: Literal["generation_formed"] = "generation_formed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationBroken:
    """A member could not go on in its generation and waits for a newer one."""

    time_s: float
    job: str
    generation: int
    member: Member
    detail: str = ""
    #: The nodes of the members to which this one cannot connect.
    unreachable: tuple[str, ...] = ()
    kind: Literal["generation_broken"] = "generation_broken"
