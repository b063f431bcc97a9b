"""Events about sweeps: what users ask for, what trials report, what the suggester answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from offcut.model.search_space import ParameterValues
from offcut.model.sweep import SchedulerAnswer, Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSubmitted:
    """A user submitted a sweep."""

    time_s: float
    sweep: Sweep
    kind: Literal["sweep_submitted"] = "sweep_submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPaused:
    """A user paused a sweep: its trials get no nodes until it is resumed."""

    time_s: float
    sweep: str
    kind: Literal["sweep_paused"] = "sweep_paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResumed:
    """A user resumed a paused sweep."""

    time_s: float
    sweep: str
    kind: Literal["sweep_resumed"] = "sweep_resumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCancelled:
    """A user ended a sweep and its trials for good."""

    time_s: float
    sweep: str
    kind: Literal["sweep_cancelled"] = "sweep_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepExtended:
    """A user raised the limits of a sweep; None leaves one as it is."""

    time_s: float
    sweep: str
    max_trials: int | None = None
    total_budget: float | None = None
    max_node_hours: float | None = None
    kind: Literal["sweep_extended"] = "sweep_extended"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepForgotten:
    """A sweep that has ended leaves the state, with its trials. `files`: what offcut wrote for them is deleted, too."""

    time_s: float
    sweep: str
    #: The jobs of its trials.
    jobs: tuple[str, ...] = ()
    files: bool = False
    kind: Literal["sweep_forgotten"] = "sweep_forgotten"


@dataclass(frozen=True, slots=True)
class ObjectiveReport:
    """The objective's value at a cumulative budget, as a script reported it."""

    budget: float
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectivesRead:
    """What the script of a trial reported since this was read last. `complete`: it has ended, and that is all of it."""

    time_s: float
    job: str
    reports: tuple[ObjectiveReport, ...] = ()
    complete: bool = False
    kind: Literal["objectives_read"] = "objectives_read"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSuggested:
    """The suggester's parameters of a trial. `failure`: there are none, for this reason."""

    time_s: float
    sweep: str
    trial: int
    parameters: ParameterValues
    failure: str = ""
    kind: Literal["trial_suggested"] = "trial_suggested"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerAnswered:
    """What the scheduler in a user's file answered about a sweep at `revision`. `failure`: why it did not answer."""

    time_s: float
    sweep: str
    revision: int
    answers: tuple[SchedulerAnswer, ...] = ()
    failure: str = ""
    kind: Literal["scheduler_answered"] = "scheduler_answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStateCopied:
    """The copying that `CopyJobState` asks for has been done. `source`: the job whose state it was; empty: none had."""

    time_s: float
    job: str
    source: str = ""
    kind: Literal["job_state_copied"] = "job_state_copied"
