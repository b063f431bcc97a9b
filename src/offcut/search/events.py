"""What a search answers, and what it wants carried out. A reclaim is neither: a trial whose nodes go only takes longer.

All of it is data. Effects are idempotent: carrying one out again changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcut.model.search_space import ParameterValues
from offcut.model.sweep import SchedulerAnswer


@dataclass(frozen=True, slots=True)
class TrialReported:
    """The script of a trial reported its objective at a cumulative budget."""

    trial: int
    budget: float
    value: float
    #: The trial's leg to which the script belongs.
    leg: int = 0


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """The script of a trial came to its end, or failed for good."""

    trial: int
    failed: bool
    reason: str = ""
    leg: int = 0


@dataclass(frozen=True, slots=True)
class ParametersSuggested:
    """The suggester's answer to `AskParameters`."""

    trial: int
    parameters: ParameterValues


@dataclass(frozen=True, slots=True)
class SuggestionFailed:
    """The suggester has no answer to `AskParameters`, for this reason: the parameters are drawn at random."""

    trial: int
    reason: str


@dataclass(frozen=True, slots=True)
class SchedulerAnswered:
    """What the scheduler in a user's file answered, call by call, to the search as it was at `revision`."""

    revision: int
    answers: tuple[SchedulerAnswer, ...]


@dataclass(frozen=True, slots=True)
class SchedulerFailed:
    """The scheduler in a user's file has no answer, for this reason: the sweep is paused."""

    reason: str


@dataclass(frozen=True, slots=True)
class SlotsChanged:
    """This many trials are useful at once, as far as nodes are concerned. Trials that run are not halted."""

    slots: int


@dataclass(frozen=True, slots=True)
class NodeTimeUsed:
    """For how long nodes were assigned to all trials together until now, in node-seconds."""

    node_s: float


@dataclass(frozen=True, slots=True)
class SearchPaused:
    """The user paused the sweep: no trial runs until it is resumed."""


@dataclass(frozen=True, slots=True)
class SearchResumed:
    """The user resumed the sweep."""


@dataclass(frozen=True, slots=True)
class SearchCancelled:
    """The user ended the sweep for good."""


@dataclass(frozen=True, slots=True)
class SearchExtended:
    """The user raised the sweep's limits; None leaves one as it is."""

    max_trials: int | None = None
    total_budget: float | None = None
    max_node_hours: float | None = None


SearchEvent = (
    TrialReported
    | TrialEnded
    | ParametersSuggested
    | SuggestionFailed
    | SchedulerAnswered
    | SchedulerFailed
    | SlotsChanged
    | NodeTimeUsed
    | SearchPaused
    | SearchResumed
    | SearchCancelled
    | SearchExtended
)


@dataclass(frozen=True, slots=True)
class AskParameters:
    """Ask the suggester for the parameters of this trial, once it knows all results until now."""

    trial: int


@dataclass(frozen=True, slots=True)
class StartTrial:
    """Start the script of a trial."""

    trial: int
    parameters: ParameterValues


@dataclass(frozen=True, slots=True)
class HaltTrial:
    """Pause the trial. It keeps its state, at its next step boundary."""

    trial: int


@dataclass(frozen=True, slots=True)
class ResumeTrial:
    """Resume the trial from its state."""

    trial: int


@dataclass(frozen=True, slots=True)
class StopTrial:
    """End the trial for good."""

    trial: int
    reason: str


@dataclass(frozen=True, slots=True)
class CopyState:
    """End the script of the trial, and start it again from the state that `source` had at `source_budget`, or has now.

    `source_leg`: the leg of `source` whose state that is.
    """

    trial: int
    leg: int
    source: int
    source_leg: int
    source_budget: float
    parameters: ParameterValues


@dataclass(frozen=True, slots=True)
class RungReached:
    """The trial has a result at one more rung. `rungs`: how many it has reached."""

    trial: int
    rungs: int


@dataclass(frozen=True, slots=True)
class LogDecision:
    """A line of the sweep's log. `trial`: the one that it is about; None: the whole sweep."""

    text: str
    trial: int | None = None


SearchEffect = AskParameters | StartTrial | HaltTrial | ResumeTrial | StopTrial | CopyState | RungReached | LogDecision
