"""Regularised evolution: a new trial is a mutation of the best of a random sample of the youngest trials.

Real et al., "Regularized Evolution for Image Classifier Architecture Search", AAAI 2019, algorithm 1: the oldest leave
the population, and not the worst.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcut.errors import InputError
from offcut.search.random_numbers import random_for
from offcut.search.rungs import check_budgets
from offcut.search.schedulers.base import Continue, Decision, Resume, SearchView, StartNew
from offcut.search.suggestion import mutate
from offcut.search.trials import Trial, loss


@dataclass(frozen=True, kw_only=True)
class RegularizedEvolution:
    """The first `population` trials are suggested; each later one is a mutation.

    Its parent is the best of `sample_size` trials drawn, with replacement, from the last `population` that completed.
    """

    max_budget: float
    population: int = 20
    sample_size: int = 5
    waits_at_rungs = False

    def __post_init__(self) -> None:
        check_budgets(max_budget=self.max_budget)
        if self.population < 2:
            raise InputError(f"population must be at least 2, not {self.population}.")
        if not 1 <= self.sample_size <= self.population:
            raise InputError(f"sample_size must be from 1 to the population, not {self.sample_size}.")

    def next_rung(self, trial: Trial, budget: float) -> float:
        return self.max_budget

    def decide(self, view: SearchView, trial: Trial) -> Decision:
        return Continue()

    def next_trial(self, view: SearchView) -> StartNew | Resume | None:
        number = view.next_number
        if number < self.population:
            return StartNew()
        living = view.completed[-self.population :]
        if not living:
            # None has completed yet; if all failed, the search begins again.
            waits = any(trial.phase not in ("failed", "stopped") for trial in view.trials.values())
            return None if waits else StartNew()
        random = random_for(view.sweep.seed, "evolve", number)
        sample = [living[random.randrange(len(living))] for _ in range(self.sample_size)]
        parent = min(sample, key=lambda each: (loss(view.trials[each].value, view.sweep.direction), each))
        values = mutate(view.trials[parent].parameters or {}, view.sweep.space, random)
        return StartNew(parameters=values, parent=parent)
