"""Hyperband: brackets of successive halving, from many small trials to few large ones.

Li et al., JMLR 18:185, 2018. A rung's trials are promoted when all of them have their results. Meanwhile the next
bracket begins, so that no node waits; after the last bracket the first one comes again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from offcut.search.rungs import bracket_count, bracket_table, check_budgets
from offcut.search.schedulers.base import Decision, Halt, Resume, SearchView, StartNew
from offcut.search.trials import FINAL, Trial, loss


@dataclass(frozen=True, kw_only=True)
class Hyperband:
    """Successive halving in brackets. A trial that fails counts as the worst of its rung."""

    max_budget: float
    min_budget: float = 1.0
    reduction_factor: float = 3.0
    waits_at_rungs = True

    def __post_init__(self) -> None:
        check_budgets(max_budget=self.max_budget, min_budget=self.min_budget, reduction_factor=self.reduction_factor)

    @cached_property
    def table(self) -> list[list[tuple[int, float]]]:
        """By bracket and rung: how many trials, and their budget."""
        count = bracket_count(self.min_budget, self.max_budget, self.reduction_factor)
        return bracket_table(count, self.max_budget, self.reduction_factor)

    def _rungs(self, bracket: int) -> list[tuple[int, float]]:
        return self.table[bracket % len(self.table)]

    def next_rung(self, trial: Trial, budget: float) -> float:
        return next(rung for _, rung in self._rungs(trial.bracket) if rung > budget)

    def decide(self, view: SearchView, trial: Trial) -> Decision:
        return Halt()

    def next_trial(self, view: SearchView) -> StartNew | Resume | None:
        by_bracket: dict[int, list[Trial]] = {}
        for trial in view.trials.values():
            by_bracket.setdefault(trial.bracket, []).append(trial)
        started = 0
        for bracket in range(len(by_bracket) + 1):
            room = view.sweep.max_trials - started
            size = min(self._rungs(bracket)[0][0], room)
            trials = by_bracket.get(bracket, [])
            started += len(trials)
            promoted = self._promotable(view, bracket, size, trials)
            if promoted is not None:
                return Resume(promoted)
            if len(trials) < size:
                return StartNew(bracket)
        return None

    def _promotable(self, view: SearchView, bracket: int, size: int, trials: list[Trial]) -> int | None:
        """Return the best trial to promote in this bracket, from its highest rung with all results; None: none."""
        direction = view.sweep.direction
        rungs = self._rungs(bracket)
        if len(trials) < size:
            return None
        for place in range(len(rungs) - 2, -1, -1):
            budget = rungs[place][1]
            here = [trial for trial in trials if trial.rung_budget >= budget]
            arrived = all(trial.value_at(budget) is not None or trial.phase in FINAL for trial in here)
            if not arrived or len(here) < math.floor(size / self.reduction_factor**place):
                continue
            ranked = sorted((loss(trial.value_at(budget), direction), trial.number) for trial in here)
            for own, number in ranked[: math.floor(size / self.reduction_factor ** (place + 1))]:
                trial = view.trials[number]
                if trial.phase == "halted" and trial.budget == budget and not math.isinf(own):
                    return number
        return None
