"""Policies as users might write them by mistake."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from offcut.allocate.baselines import greedy
from offcut.model import AllocationProblem


def loops(problem: AllocationProblem) -> Mapping[str, int]:
    while True:
        pass


def exits(problem: AllocationProblem) -> Mapping[str, int]:
    raise SystemExit(3)


def dies(problem: AllocationProblem) -> Mapping[str, int]:
    os._exit(3)


def slow(problem: AllocationProblem) -> Mapping[str, int]:
    time.sleep(1.3)
    return greedy.allocate(problem)
