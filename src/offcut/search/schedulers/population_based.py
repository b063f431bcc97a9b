"""Population-based training: trials that fall behind take over the state of a better one and change its parameters.

Jaderberg et al., arXiv 1711.09846, 2017: truncation selection, then perturbation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from offcut.errors import InputError
from offcut.search.random_numbers import random_for
from offcut.search.rungs import check_budgets, next_multiple
from offcut.search.schedulers.base import Continue, Decision, Exploit, Halt, Resume, SearchView, StartNew
from offcut.search.suggestion import perturb
from offcut.search.trials import Trial, loss


@dataclass(frozen=True, kw_only=True)
class PopulationBasedTraining:
    """At every multiple of `interval`, a trial among the worst `quantile` continues from one among the best.

    Where fewer trials run at once than the population has, they take turns: one that has reached its rung halts if
    another one has not got as far. So all are compared at about the same budget.

    `waits_at_rungs`: the state that is copied is then about the one at which the copied trial was compared.
    """

    max_budget: float
    interval: float = 1.0
    population: int = 8
    quantile: float = 0.25
    #: A number is multiplied by one of these.
    shrink_factor: float = 0.8
    grow_factor: float = 1.2
    #: The probability that a parameter is drawn at random instead.
    resample: float = 0.25
    waits_at_rungs = True

    def __post_init__(self) -> None:
        check_budgets(max_budget=self.max_budget)
        if not 0 < self.interval <= self.max_budget:
            raise InputError(f"interval must be greater than 0 and at most max_budget, not {self.interval:g}.")
        if self.population < 2:
            raise InputError(f"population must be at least 2, not {self.population}.")
        if not 0 < self.quantile <= 0.5:
            raise InputError(f"quantile must be greater than 0 and at most 0.5, not {self.quantile:g}.")
        if not 0 <= self.resample <= 1:
            raise InputError(f"resample must be a probability, not {self.resample:g}.")

    def next_rung(self, trial: Trial, budget: float) -> float:
        return next_multiple(self.interval, budget, self.max_budget)

    def decide(self, view: SearchView, trial: Trial) -> Decision:
        sweep = view.sweep
        ranked = sorted(
            (loss(other.value, sweep.direction), other.number)
            for other in view.trials.values()
            if other.results and other.phase not in ("failed", "stopped")
        )
        chosen = math.floor(len(ranked) * self.quantile)
        worst = [number for _, number in ranked[len(ranked) - chosen :]]
        own_loss = loss(trial.value, sweep.direction)
        # A trial that used its whole budget, or whose script has ended, has nothing left to train with.
        better = [
            number
            for other_loss, number in ranked[:chosen]
            if other_loss < own_loss
            and view.trials[number].budget < self.max_budget
            and view.trials[number].end is None
        ]
        if trial.number not in worst or not better:
            return Halt() if self._others_wait(view, trial) else Continue()
        random = random_for(sweep.seed, "exploit", trial.number, trial.leg, trial.budget)
        source = view.trials[better[random.randrange(len(better))]]
        parameters = perturb(
            source.parameters or {},
            sweep.space,
            random,
            factors=(self.shrink_factor, self.grow_factor),
            resample=self.resample,
        )
        return Exploit(source.number, parameters)

    def next_trial(self, view: SearchView) -> StartNew | Resume | None:
        if view.next_number < self.population:
            return StartNew()
        halted = [(trial.budget, number) for number, trial in view.trials.items() if trial.phase == "halted"]
        return Resume(min(halted)[1]) if halted else None

    def _others_wait(self, view: SearchView, trial: Trial) -> bool:
        """Return whether another trial has not been started, or is halted at a lower budget or number."""
        if view.next_number < min(self.population, view.sweep.max_trials):
            return True
        own = (trial.budget, trial.number)
        return any((other.budget, n) < own for n, other in view.trials.items() if other.phase == "halted")
