"""The median stopping rule: a trial stops when its best value is worse than the median of the others' averages.

Golovin et al., "Google Vizier", KDD 2017, section 3.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from offcut.errors import InputError
from offcut.search.rungs import check_budgets, next_multiple
from offcut.search.schedulers.base import Continue, Decision, Resume, SearchView, StartNew, Stop
from offcut.search.trials import Trial, loss


@dataclass(frozen=True, kw_only=True)
class MedianStopping:
    """Compares trials at every multiple of `interval`, from `grace_budget` on, once `min_trials` others got as far."""

    max_budget: float
    interval: float = 1.0
    grace_budget: float = 1.0
    min_trials: int = 3
    waits_at_rungs = False

    def __post_init__(self) -> None:
        check_budgets(max_budget=self.max_budget)
        if not 0 < self.interval <= self.max_budget:
            raise InputError(f"interval must be greater than 0 and at most max_budget, not {self.interval:g}.")
        if self.min_trials < 1:
            raise InputError(f"min_trials must be at least 1, not {self.min_trials}.")

    def next_rung(self, trial: Trial, budget: float) -> float:
        return next_multiple(self.interval, budget, self.max_budget)

    def decide(self, view: SearchView, trial: Trial) -> Decision:
        direction = view.sweep.direction
        if trial.budget < self.grace_budget:
            return Continue()
        # All trials have the same rungs, so that the results up to this budget are the first ones of each.
        count = len(trial.results)
        averages = [
            sum([loss(result.value, direction) for result in other.results[:count]]) / count
            for other in view.trials.values()
            if len(other.results) >= count and other is not trial
        ]
        own = min(loss(result.value, direction) for result in trial.results)
        if len(averages) < self.min_trials or own <= median(averages):
            return Continue()
        return Stop(f"worse than the median of {len(averages)} others at budget {trial.budget:g}")

    def next_trial(self, view: SearchView) -> StartNew | Resume | None:
        return StartNew()
