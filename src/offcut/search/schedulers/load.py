"""Loads trial schedulers by name, or from a user's file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import Any

from offcut.errors import InputError
from offcut.model.sweep import SchedulerChoice, SchedulerTraits, Sweep
from offcut.search.schedulers.base import Decision, Resume, SearchView, StartNew, TrialScheduler
from offcut.search.schedulers.hyperband import Hyperband
from offcut.search.schedulers.median_stopping import MedianStopping
from offcut.search.schedulers.population_based import PopulationBasedTraining
from offcut.search.schedulers.promotion_asha import PromotionAsha
from offcut.search.schedulers.regularized_evolution import RegularizedEvolution
from offcut.search.schedulers.run_all import RunAll
from offcut.search.schedulers.stopping_asha import StoppingAsha
from offcut.search.trials import Trial
from offcut.userfile import load_function

#: The schedulers that come with offcut.
BUILT_IN: dict[str, type[Any]] = {
    "none": RunAll,
    "asha": PromotionAsha,
    "asha-stopping": StoppingAsha,
    "hyperband": Hyperband,
    "median-stopping": MedianStopping,
    "pbt": PopulationBasedTraining,
    "regularized-evolution": RegularizedEvolution,
}
#: What a user's scheduler must have.
_MEMBERS = ("max_budget", "waits_at_rungs", "next_rung", "decide", "next_trial")


@lru_cache(maxsize=256)
def load(choice: SchedulerChoice) -> TrialScheduler:
    """Load a scheduler with its options.

    Args:
        choice: a key of `BUILT_IN`, or `my_scheduler.py:CLASS` (`Scheduler` if the class is not named), with the
            keyword arguments with which it is called.

    Returns:
        The scheduler. It keeps nothing between calls, so that equal choices may share it.

    Raises:
        InputError: no scheduler has this name, its file cannot be loaded, or an option is wrong.
    """
    make: Callable[..., Any]
    if choice.name in BUILT_IN:
        make = BUILT_IN[choice.name]
    else:
        example = "class Scheduler: max_budget = 9; waits_at_rungs = False; def next_rung(self, trial, budget): ..."
        make = load_function(choice.name, what="scheduler", default="Scheduler", example=example, built_in=BUILT_IN)
    _check_numbers(choice)
    try:
        made = make(**dict(choice.options))
    except InputError as error:
        raise InputError(f"scheduler {choice.name}: {error.what}", next_step=error.next_step) from None
    except TypeError as error:
        # Of a dataclass: an option that it does not have, or one that is missing.
        text = str(error).partition("__init__() ")[2] or str(error)
        raise InputError(
            f"scheduler {choice.name}: its options do not fit: {text}.", next_step="See the page on sweeps."
        ) from None
    except Exception as error:
        raise InputError(
            f"scheduler {choice.name}: {type(error).__name__}: {error}.", next_step="Correct the file."
        ) from error
    missing = [member for member in _MEMBERS if not hasattr(made, member)]
    if missing:
        raise InputError(
            f"scheduler {choice.name}: it has no {missing[0]}.",
            next_step="It must have: " + ", ".join(_MEMBERS) + ".",
        )
    scheduler: TrialScheduler = made
    return scheduler


class _InAnotherProcess:
    """Stands for a scheduler in a user's file, which is asked in a process of its own."""

    def __init__(self, traits: SchedulerTraits) -> None:
        self.max_budget, self.waits_at_rungs = traits.max_budget, traits.waits_at_rungs

    def next_rung(self, trial: Trial, budget: float) -> float:
        raise NotImplementedError

    def decide(self, view: SearchView, trial: Trial) -> Decision:
        raise NotImplementedError

    def next_trial(self, view: SearchView) -> StartNew | Resume | None:
        raise NotImplementedError


def scheduler_of(sweep: Sweep) -> TrialScheduler:
    """Return the scheduler of a sweep. One in a user's file is not loaded: of that only its traits are there."""
    return load(sweep.scheduler) if sweep.scheduler_traits is None else _InAnotherProcess(sweep.scheduler_traits)


def _check_numbers(choice: SchedulerChoice) -> None:
    """Raise InputError if an option of a built-in scheduler is not a number, or not an integer where it must be."""
    if choice.name not in BUILT_IN:
        return
    kinds = {field.name: str(field.type) for field in fields(BUILT_IN[choice.name])}
    for name, value in choice.options:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"scheduler {choice.name}: {name} must be a number, not {value!r}.")
        if kinds.get(name) == "int" and not isinstance(value, int):
            raise InputError(f"scheduler {choice.name}: {name} must be an integer, not {value!r}.")
