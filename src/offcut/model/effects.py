"""What the controller wants carried out. Effects are idempotent data, keyed by an index and the event behind them."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.model.allocation import AllocationProblem
from offcut.model.ended_job import EndedJob
from offcut.model.events import Member, Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Caused:
    #: The number of the event in the journal.
    cause: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(_Caused):
    """Claim these idle nodes and boot an agent on each. `until_s` is the earliest known end of their windows."""

    nodes: tuple[str, ...]
    until_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(_Caused):
    """Release these nodes: their agents let the workers leave at the step boundary, then exit."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorkers(_Caused):
    """Start the job's workers on these nodes; they report ready and wait for a generation that includes them."""

    job: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWorkers(_Caused):
    """Stop the job's workers on these nodes: members at their step boundary, within `limit_s`; others at once."""

    job: str
    members: tuple[Member, ...]
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGeneration(_Caused):
    """Set the job's newest generation. `previous` members are told too, so that those who are not in it leave."""

    job: str
    generation: int
    members: tuple[Member, ...]
    previous: tuple[Member, ...]
    #: Whether some of `previous` have died: then members do not wait for reduces with them.
    abort: bool
    #: The members of `previous` that live and are left out: before they leave they save what only they have.
    departing: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonOlderGenerations(_Caused):
    """Tell these members to abandon what is in flight under generations before the job's newest: it may never end."""

    job: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Solve(_Caused):
    """Solve the problem; the answer is an event, and is ignored unless its version is still the newest."""

    version: int
    problem: AllocationProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer(_Caused):
    timer: Timer
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteLog(_Caused):
    """Write a line to the log of a job or a node, which users read."""

    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveJob(_Caused):
    """Add a job that has left the state to the history."""

    job: EndedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetJobs(_Caused):
    """Remove these jobs and their logs from the history; with `files`, what offcut wrote in their directories."""

    jobs: tuple[str, ...]
    files: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyJobState(_Caused):
    """Copy what a job has saved to the directory of another job, which has not started.

    Its answer is the event `JobStateCopied`.
    """

    job: str
    #: The first of these jobs that has saved something is copied. None of them runs.
    sources: tuple[str, ...]


Effect = (
    Claim
    | Release
    | StartWorkers
    | StopWorkers
    | SetGeneration
    | AbandonOlderGenerations
    | Solve
    | SetTimer
    | WriteLog
    | ArchiveJob
    | ForgetJobs
    | CopyJobState
)
