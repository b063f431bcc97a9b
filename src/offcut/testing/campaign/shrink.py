"""Finds a shortest schedule that still breaks the same invariant: delta debugging (Zeller, 2002) over actions."""

from __future__ import annotations

import re
import time

from offcut.testing.campaign.campaign import SeedResult, run_seed

#: The search ends after this long with the shortest that it has found.
_LIMIT_S = 120.0


def shortest(failed: SeedResult, limit_s: float = _LIMIT_S) -> SeedResult:
    """Return the result of the shortest schedule found that fails as this one did.

    Args:
        failed: the result of a seed that broke an invariant.
        limit_s: how long to look.
    """
    until_s = time.monotonic() + limit_s
    what = kind_of(failed.violations[0])
    best = failed
    numbers = [action.number for action in failed.actions]
    parts = 2
    while len(numbers) > 1 and time.monotonic() < until_s:
        length = -(-len(numbers) // parts)
        for first in range(0, len(numbers), length):
            left = numbers[:first] + numbers[first + length :]
            tried = run_seed(failed.seed, only=set(left), until_s=failed.simulated_s + 1.0)
            if tried.violations and kind_of(tried.violations[0]) == what:
                best, numbers = tried, [action.number for action in tried.actions]
                parts = max(2, parts - 1)
                break
            if time.monotonic() > until_s:
                break
        else:
            if parts >= len(numbers):
                break
            parts = min(len(numbers), 2 * parts)
    return best


def kind_of(violation: str) -> str:
    """Return a violation without names and numbers, so that two of one kind compare equal."""
    return re.sub(r"[\w.]*\d[\w.#:]*", "…", violation)
