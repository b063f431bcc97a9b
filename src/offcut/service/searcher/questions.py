"""What the searcher's process is asked, as plain data. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from offcut.control.sweep_state import SweepState
from offcut.model.search_space import ParameterValues, SearchSpace
from offcut.model.sweep import Direction
from offcut.search.trials import Trial

#: `running`: no result yet. `pruned`: halted, stopped, or on its way to the next rung.
TrialOutcome = Literal["running", "pruned", "complete", "failed"]


@dataclass(frozen=True, slots=True)
class KnownTrial:
    """A trial as Optuna is told of it."""

    number: int
    parameters: ParameterValues
    outcome: TrialOutcome
    #: By rung: the cumulative budget and the value.
    results: tuple[tuple[float, float], ...]
    #: Whether nothing more will come of it.
    final: bool


@dataclass(frozen=True, slots=True)
class StudyQuestion:
    """Everything that a suggestion, or the stored study, depends on."""

    study: str
    space: SearchSpace
    direction: Direction
    sampler: str
    seed: int
    trials: tuple[KnownTrial, ...]


def question_of(sweep: SweepState) -> StudyQuestion:
    """Return what Optuna is told of a sweep: results that decisions were made upon, and no others.

    So a suggestion does not depend on reports that wait for their turn.
    """
    definition = sweep.search.sweep
    over = sweep.search.phase not in ("running", "paused")
    return StudyQuestion(
        study=definition.id,
        space=definition.space,
        direction=definition.direction,
        sampler=definition.sampler,
        seed=definition.seed,
        trials=tuple(
            _known(trial, over=over) for trial in sweep.search.trials.values() if trial.parameters is not None
        ),
    )


def _known(trial: Trial, *, over: bool) -> KnownTrial:
    outcome: TrialOutcome
    if trial.phase == "failed":
        outcome = "failed"
    elif trial.phase == "completed":
        outcome = "complete"
    else:
        outcome = "pruned" if trial.results else "running"
    final = trial.phase in ("completed", "failed", "stopped") or (over and trial.phase == "halted")
    results = tuple((result.budget, result.value) for result in trial.results)
    return KnownTrial(trial.number, dict(trial.parameters or {}), outcome, results, final)
