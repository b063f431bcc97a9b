"""Asynchronous successive halving as it was published: trials halt at every rung, and the best are promoted later.

Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020, algorithm 2. It needs trials that can be
halted and resumed, which are jobs here: a halted trial keeps its state and holds no node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from offcut.search.rungs import check_budgets, geometric_rungs
from offcut.search.schedulers.base import Decision, Halt, Resume, SearchView, StartNew
from offcut.search.trials import Trial, loss


@dataclass(frozen=True, kw_only=True)
class PromotionAsha:
    """A halted trial is promoted when it is among the best 1 / reduction_factor, rounded down, of its rung.

    Promotions come before new trials, those of higher rungs first.
    """

    max_budget: float
    min_budget: float = 1.0
    reduction_factor: float = 3.0
    waits_at_rungs = True

    def __post_init__(self) -> None:
        check_budgets(max_budget=self.max_budget, min_budget=self.min_budget, reduction_factor=self.reduction_factor)

    @cached_property
    def rungs(self) -> tuple[float, ...]:
        """The rungs, in order."""
        return geometric_rungs(self.min_budget, self.max_budget, self.reduction_factor)

    def next_rung(self, trial: Trial, budget: float) -> float:
        return next(rung for rung in self.rungs if rung > budget)

    def decide(self, view: SearchView, trial: Trial) -> Decision:
        return Halt()

    def next_trial(self, view: SearchView) -> StartNew | Resume | None:
        direction = view.sweep.direction
        ranked: dict[float, list[tuple[float, int]]] = {rung: [] for rung in self.rungs}
        for number, trial in view.trials.items():
            for result in trial.results:
                ranked[result.budget].append((loss(result.value, direction), number))
        for rung in reversed(self.rungs[:-1]):
            promotable = self._promotable(view, rung, ranked[rung])
            if promotable is not None:
                return Resume(promotable)
        return StartNew()

    def _promotable(self, view: SearchView, rung: float, results: list[tuple[float, int]]) -> int | None:
        """Return the best trial that is halted at this rung and belongs to the rung's best; None if none does."""
        for own, number in sorted(results)[: math.floor(len(results) / self.reduction_factor)]:
            trial = view.trials[number]
            if trial.phase == "halted" and trial.budget == rung and not math.isinf(own):
                return number
        return None
