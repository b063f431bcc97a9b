"""Asynchronous successive halving that stops trials: at each rung, those that are not among the best so far.

This is the variant that most libraries have (Li et al., MLSys 2020, appendix; Ray Tune's ASHA): a stopped trial never
comes back, so a trial that was early at a rung runs on whatever comes later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from offcut.search.rungs import check_budgets, geometric_rungs
from offcut.search.schedulers.base import Continue, Decision, Resume, SearchView, StartNew, Stop
from offcut.search.trials import Trial, loss


@dataclass(frozen=True, kw_only=True)
class StoppingAsha:
    """A trial runs on if it is among the best 1 / reduction_factor of the results at its rung, rounded up."""

    max_budget: float
    min_budget: float = 1.0
    reduction_factor: float = 3.0
    waits_at_rungs = False

    def __post_init__(self) -> None:
        check_budgets(max_budget=self.max_budget, min_budget=self.min_budget, reduction_factor=self.reduction_factor)

    @cached_property
    def rungs(self) -> tuple[float, ...]:
        """The rungs, in order."""
        return geometric_rungs(self.min_budget, self.max_budget, self.reduction_factor)

    def next_rung(self, trial: Trial, budget: float) -> float:
        return next(rung for rung in self.rungs if rung > budget)

    def decide(self, view: SearchView, trial: Trial) -> Decision:
        direction = view.sweep.direction
        own = loss(trial.value, direction)
        values = [value for other in view.trials.values() if (value := other.value_at(trial.budget)) is not None]
        better = sum(loss(value, direction) < own for value in values)
        places = math.ceil(len(values) / self.reduction_factor)
        if better < places and not math.isinf(own):
            return Continue()
        return Stop(f"not among the best {places} of {len(values)} at budget {trial.budget:g}")

    def next_trial(self, view: SearchView) -> StartNew | Resume | None:
        return StartNew()
