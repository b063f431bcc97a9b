"""Rungs: the cumulative budgets at which trials are compared."""

from __future__ import annotations

import math

from offcut.errors import InputError


def check_budgets(*, max_budget: float, min_budget: float | None = None, reduction_factor: float | None = None) -> None:
    """Raise InputError unless these options of a scheduler are possible.

    Args:
        max_budget: the budget of a completed trial.
        min_budget: the budget of the first rung.
        reduction_factor: by which factor the number of trials falls from rung to rung.
    """
    if not (max_budget > 0 and math.isfinite(max_budget)):
        raise InputError(f"max_budget must be greater than 0 and finite, not {max_budget:g}.")
    if min_budget is not None and not 0 < min_budget <= max_budget:
        raise InputError(
            f"min_budget must be greater than 0 and at most max_budget ({max_budget:g}), not {min_budget:g}."
        )
    if reduction_factor is not None and not (reduction_factor >= 2 and math.isfinite(reduction_factor)):
        raise InputError(f"reduction_factor must be at least 2, not {reduction_factor:g}.")
    if min_budget is not None and reduction_factor is not None and max_budget / min_budget > 1e12:
        raise InputError(f"min_budget {min_budget:g} is too small for max_budget {max_budget:g}.")


def geometric_rungs(min_budget: float, max_budget: float, reduction_factor: float) -> tuple[float, ...]:
    """Return the rungs min_budget × reduction_factor^k below max_budget, then max_budget.

    Args:
        min_budget: the first rung.
        max_budget: the last rung.
        reduction_factor: the ratio of one rung to the one before.
    """
    rungs = []
    budget = min_budget
    while budget < max_budget:
        rungs.append(budget)
        budget = min_budget * reduction_factor ** len(rungs)
    return (*rungs, max_budget)


def bracket_count(min_budget: float, max_budget: float, reduction_factor: float) -> int:
    """Return how many brackets Hyperband has: s_max + 1, with s_max the largest s at which max / factor^s >= min.

    Args:
        min_budget: the smallest budget of a first rung.
        max_budget: the last rung of every bracket.
        reduction_factor: Hyperband's η.
    """
    count = 1
    while max_budget / reduction_factor**count >= min_budget:
        count += 1
    return count


def bracket_table(brackets: int, max_budget: float, reduction_factor: float) -> list[list[tuple[int, float]]]:
    """Return Hyperband's brackets, from the one with the most trials to the one that only runs whole budgets.

    Bracket s begins with n = ceil(brackets / (s + 1) · η^s) trials of budget R / η^s; its rung i has floor(n / η^i)
    trials (Li et al., JMLR 18:185, algorithm 1).

    Args:
        brackets: how many there are.
        max_budget: R, the last rung of every bracket.
        reduction_factor: η.

    Returns:
        By bracket and rung, the number of trials and their cumulative budget.
    """
    table = []
    for s in range(brackets - 1, -1, -1):
        first = math.ceil(brackets / (s + 1) * reduction_factor**s)
        table.append(
            [
                (math.floor(first / reduction_factor**rung), max_budget / reduction_factor ** (s - rung))
                for rung in range(s + 1)
            ]
        )
    return table


def next_multiple(interval: float, budget: float, max_budget: float) -> float:
    """Return the first multiple of `interval` above `budget`, `max_budget` at most.

    Args:
        interval: the distance of two rungs.
        budget: the budget so far.
        max_budget: the last rung.
    """
    return min(interval * (math.floor(budget / interval) + 1), max_budget)
