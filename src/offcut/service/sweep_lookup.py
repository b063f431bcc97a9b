"""Finds the sweep that a user means, and shows it as plain data for JSON."""

from __future__ import annotations

import math
from typing import Any

from offcut.control import State, sweeps
from offcut.control.sweep_state import SweepState, sweep_id_of
from offcut.errors import InputError
from offcut.search.trials import FINAL, Trial, best


def find(state: State, name: str) -> SweepState:
    """Return a sweep by its id or its name: of several of a name the newest that lives, else the newest.

    Raises:
        InputError: There is none.
    """
    if name in state.sweeps:
        return state.sweeps[name]
    named = [sweep for sweep in state.sweeps.values() if sweep.search.sweep.name == name]
    if not named:
        raise InputError(f"There is no sweep called {name}.", next_step="See: offcut sweeps")
    return max(named, key=lambda sweep: (sweep.ended_s is None, sweep.submitted_s))


def is_sweep(state: State, name: str) -> bool:
    """Return whether a sweep has this id or name."""
    return any(name in (sweep_id, sweep.search.sweep.name) for sweep_id, sweep in state.sweeps.items())


def find_ended(state: State, names: list[str]) -> tuple[str, ...]:
    """Return the ids of sweeps that have ended.

    Raises:
        InputError: One does not exist, or has not ended.
    """
    found = [find(state, name) for name in names]
    for sweep in found:
        if sweep.ended_s is None:
            sweep_id = sweep.search.sweep.id
            raise InputError(
                f"{sweep_id} is {sweep.search.phase}: only sweeps that have ended can be forgotten.",
                next_step=f"End it with: offcut cancel {sweep_id}",
            )
    return tuple(dict.fromkeys(sweep.search.sweep.id for sweep in found))


def refuse_trial(state: State, job_id: str) -> None:
    """Raise InputError if the job is a trial of a sweep that has not ended: the sweep halts and resumes its trials."""
    sweep = state.sweeps.get(sweep_id_of(job_id))
    if sweep is not None and sweep.ended_s is None:
        sweep_id = sweep.search.sweep.id
        raise InputError(
            f"{job_id} is a trial of {sweep_id}, which halts and resumes its trials itself.",
            next_step=f"Pause or resume the sweep: offcut pause {sweep_id}",
        )


def shown(state: State, sweep: SweepState, now_s: float) -> dict[str, Any]:
    """Return one line of `offcut sweeps`."""
    search, definition = sweep.search, sweep.search.sweep
    phases = [trial.phase for trial in search.trials.values()]
    return {
        "id": definition.id,
        "name": definition.name,
        "state": search.phase,
        "reason": search.reason,
        "scheduler": definition.scheduler.name,
        "direction": definition.direction,
        "order": definition.order,
        "max_trials": definition.max_trials,
        "trials": {phase: phases.count(phase) for phase in dict.fromkeys(phases)},
        "started": len(phases),
        "ended": sum(phase in FINAL for phase in phases),
        "used_budget": search.used_budget,
        "total_budget": definition.total_budget,
        "node_hours": sweeps.node_s(state, sweep, now_s) / 3600.0,
        "max_node_hours": definition.max_node_hours,
        "best": best_of(sweep),
        "submitted_s": sweep.submitted_s,
        "ended_s": sweep.ended_s,
    }


def best_of(sweep: SweepState) -> dict[str, Any] | None:
    """Return the best trial so far with its value; None before the first report that is a number."""
    found = best(sweep.search.trials, sweep.search.sweep.direction)
    if found is None:
        return None
    trial, report = found
    return {
        "trial": trial.number,
        "job": sweep.job_id(trial.number),
        "value": report.value,
        "budget": report.budget,
        "parameters": trial.parameters,
    }


def trials(state: State, sweep: SweepState, now_s: float) -> list[dict[str, Any]]:
    """Return every trial of a sweep, in order."""
    return [_trial(state, sweep, trial, now_s) for trial in sweep.search.trials.values()]


def _trial(state: State, sweep: SweepState, trial: Trial, now_s: float) -> dict[str, Any]:
    last = trial.last_report
    return {
        "trial": trial.number,
        "job": sweep.job_id(trial.number),
        "state": trial.phase,
        "reason": trial.reason or (trial.end.reason if trial.end is not None else ""),
        "parameters": trial.parameters,
        "budget": None if last is None else last.budget,
        "value": None if last is None or not math.isfinite(last.value) else last.value,
        "rungs": [[result.budget, _finite(result.value)] for result in trial.results],
        "node_hours": sweeps.trial_node_s(state, sweep, trial.number, now_s) / 3600.0,
        "parent": trial.parent,
        "copies": [
            {"budget": copy.budget, "source": copy.source, "source_budget": copy.source_budget} for copy in trial.copies
        ],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
