"""Runs every trial to its whole budget."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.search.rungs import check_budgets
from offcut.search.schedulers.base import Continue, Decision, Resume, SearchView, StartNew
from offcut.search.trials import Trial


@dataclass(frozen=True, kw_only=True)
class RunAll:
    """Every trial runs to `max_budget`; no trial is stopped."""

    max_budget: float
    waits_at_rungs = False

    def __post_init__(self) -> None:
        check_budgets(max_budget=self.max_budget)

    def next_rung(self, trial: Trial, budget: float) -> float:
        return self.max_budget

    def decide(self, view: SearchView, trial: Trial) -> Decision:
        return Continue()

    def next_trial(self, view: SearchView) -> StartNew | Resume | None:
        return StartNew()
