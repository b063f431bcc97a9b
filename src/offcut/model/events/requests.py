"""Events that users and operators cause: each is a request that they made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from offcut.model.job import Job
from offcut.model.sizes import Sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """A user submitted a job."""

    time_s: float
    job: Job
    kind: Literal["job_submitted"] = "job_submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    """A user ended a job for good."""

    time_s: float
    job: str
    kind: Literal["job_cancelled"] = "job_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPaused:
    """A user paused a job: it gets no nodes until it is resumed."""

    time_s: float
    job: str
    kind: Literal["job_paused"] = "job_paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResumed:
    """A user resumed a paused job."""

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
    """A user undoes the release of all nodes: idle nodes may be claimed again."""

    time_s: float
    kind: Literal["claiming_resumed"] = "claiming_resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsForgotten:
    """Jobs that have ended leave the state and the history. `files`: what offcut wrote for them is deleted, too."""

    time_s: float
    jobs: tuple[str, ...]
    files: bool = False
    kind: Literal["jobs_forgotten"] = "jobs_forgotten"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesForgiven:
    """A user lets nodes be claimed again that were set aside, or released by hand a moment ago. No nodes named: all."""

    time_s: float
    nodes: tuple[str, ...] = ()
    kind: Literal["nodes_forgiven"] = "nodes_forgiven"
