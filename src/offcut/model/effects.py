"""What the controller wants done. Effects are idempotent data, keyed by the event that caused them and an index."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.model.allocation import AllocationProblem
from offcut.model.events import Member, Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Caused:
    #: The number of the event in the journal.
    cause: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(_Caused):
    """Take these idle nodes through the queue and boot an agent on each; `until_s` is the earliest known end."""

    nodes: tuple[str, ...]
    until_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(_Caused):
    """Hand these nodes back: their agents let the workers leave at the step boundary, then exit."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorkers(_Caused):
    """Start the job's workers on these nodes; they report ready and wait for a generation that includes them."""

    job: str
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWorkers(_Caused):
    """End the job's workers on these nodes: members of the last generation at their boundary, within `limit_s`; the
    others at once."""

    job: str
    members: tuple[Member, ...]
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGeneration(_Caused):
    """The job's newest membership. `previous` are told too, so that those who are not in it any more leave."""

    job: str
    generation: int
    members: tuple[Member, ...]
    previous: tuple[Member, ...]
    #: Some of `previous` are gone: do not wait for what is in flight with them.
    abort: bool
    #: Those of `previous` that live and are left out: what only they have they write down before they leave.
    departing: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonOlderGenerations(_Caused):
    """What is in flight under the generations before the job's newest may never end: these members walk away from
    it.
    """

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
    """A line for the story of a job or a node."""

    subject: str
    text: str


Effect = (
    Claim | Release | StartWorkers | StopWorkers | SetGeneration | AbandonOlderGenerations | Solve | SetTimer | WriteLog
)
