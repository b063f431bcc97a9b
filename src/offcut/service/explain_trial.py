"""Why a trial of a sweep runs, or does not: in words. Pure."""

from __future__ import annotations

from offcut.control import JobState, State
from offcut.control.state import ENDED
from offcut.control.sweep_state import SweepState, sweep_id_of, trial_of
from offcut.errors import InputError
from offcut.search.result_order import awaited, has_outcome
from offcut.search.schedulers.load import BUILT_IN
from offcut.search.trials import Trial


def trial_words(state: State, item: JobState) -> list[str]:
    """Return what the sweep of a job wants of it, one sentence each; empty if the job is not of a trial that lives."""
    job_id = item.job.id
    sweep = state.sweeps.get(sweep_id_of(job_id))
    if sweep is None or job_id not in sweep.trial_jobs or item.phase in ENDED:
        return []
    trial = sweep.search.trials[sweep.trial_jobs[job_id].trial]
    words = [_weight_words(sweep, trial, item)]
    if not sweep.search.proven:
        words.append("It runs alone until it has reported its objective: then the other trials start.")
    words += _copy_words(sweep, job_id)
    if trial.phase == "running" and has_outcome(trial):
        words.append(_waiting_words(sweep, trial))
    if sweep.search.phase == "paused":
        words.append(f"Its sweep is paused; resume it with: offcut resume {sweep.search.sweep.id}")
    elif trial.phase == "halted":
        words.append(_halted_words(sweep, trial))
    if item.phase == "paused":
        words.append("It keeps its state and holds no node.")
    return words


def refuse_not_started(state: State, job_id: str) -> None:
    """Raise InputError if this is a trial that has no job yet: it says what the trial waits for."""
    sweep, number = state.sweeps.get(sweep_id_of(job_id)), trial_of(job_id)
    trial = sweep.search.trials.get(number) if sweep is not None and number is not None else None
    if sweep is None or trial is None or trial.phase not in ("asked", "ready"):
        return
    if trial.phase == "asked":
        raise InputError(f"{job_id} has not started: it waits until its parameters are suggested.")
    first = next((each.number for each in sweep.search.trials.values() if each.phase == "running"), None)
    before = "one" if first is None else f"trial {first}"
    raise InputError(f"{job_id} has not started: it waits until {before} has reported its objective.")


def _weight_words(sweep: SweepState, trial: Trial, item: JobState) -> str:
    definition = sweep.search.sweep
    rungs = len(trial.results)
    reached = (
        "no rung" if rungs == 0 else f"{rungs} rung{'s' if rungs > 1 else ''}, the last at budget {trial.budget:g}"
    )
    return (
        f"It is trial {trial.number} of {definition.id} and has reached {reached}: so it weighs {item.job.weight:g}, "
        f"which is the sweep's weight {definition.job.weight:g} times one more than its rungs."
    )


def _copy_words(sweep: SweepState, job_id: str) -> list[str]:
    copy = sweep.copies.get(job_id)
    words = [] if copy is None else [f"It waits until the state of {copy.sources[0]} is copied for it."]
    return words + [
        f"It is paused until its state is copied for {other}."
        for other, each in sweep.copies.items()
        if job_id in sweep.held and each.sources[0] == job_id
    ]


def _waiting_words(sweep: SweepState, trial: Trial) -> str:
    search = sweep.search
    others = [number for number in awaited(search) if number != trial.number]
    for_whom = "its scheduler's answer" if not others else f"the results of {_listed(others)}"
    if search.sweep.order == "logical":
        return (
            f"Its result at budget {trial.rung_budget:g} is there early: with order 'logical' results take part in a "
            f"fixed order, and it waits for {for_whom}."
        )
    return f"Its result at budget {trial.rung_budget:g} is there, and waits for {for_whom}."


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"trial{'s' if len(numbers) > 1 else ''} {shown}{more}"


def _halted_words(sweep: SweepState, trial: Trial) -> str:
    name = sweep.search.sweep.scheduler.name
    which = name if name in BUILT_IN else f"of {name}"
    if sweep.ended_s is None:
        return f"It is halted at budget {trial.budget:g}, and goes on if the scheduler {which} promotes it."
    sweep_id = sweep.search.sweep.id
    return (
        f"It was halted at budget {trial.budget:g} and not promoted before the sweep ended; it may be, after: "
        f"offcut extend {sweep_id}"
    )
