"""What a script that is a trial of a sweep uses: its parameters, its whole budget, and how it reports its objective."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from offcut.errors import InputError
from offcut.wire.worker_env import ENV_JOB_DIR, ENV_MAX_BUDGET, ENV_PARAMETERS, OBJECTIVES_FILE

#: Returns the rank of this process's member; None while there is no training.
_rank: Callable[[], int] | None = None


def follow_rank(rank: Callable[[], int]) -> None:
    """Note how the rank of this process is found.

    Args:
        rank: returns the member's number in the current generation.
    """
    global _rank  # noqa: PLW0603
    _rank = rank


def trial_parameters() -> dict[str, bool | int | float | str]:
    """Return the parameters of this trial, by name; empty in a script that is not a trial of a sweep."""
    parameters: dict[str, bool | int | float | str] = json.loads(os.environ.get(ENV_PARAMETERS, "{}"))
    return parameters


def max_budget() -> float | None:
    """Return the cumulative budget of a whole trial, for which learning-rate schedules are laid out.

    Returns:
        The budget in the unit in which the script reports; None in a script that is not a trial of a sweep.
    """
    text = os.environ.get(ENV_MAX_BUDGET)
    return None if text is None else float(text)


def report_objective(value: float, *, budget: float) -> None:
    """Report the objective of this trial. A script that is not a trial of a sweep may call it too: nothing happens.

    Every rank may call it; only the report of the first one counts. Work that is done again after a crash may be
    reported again.

    Args:
        value: the objective; NaN counts as the worst value.
        budget: the cumulative budget of this training so far, such as its epochs: greater than that of the report
            before it.

    Raises:
        InputError: the budget is not greater than 0.
    """
    if not budget > 0:
        raise InputError(f"report_objective: budget must be greater than 0, not {budget}.")
    directory = os.environ.get(ENV_JOB_DIR)
    if ENV_PARAMETERS not in os.environ or directory is None:
        return
    rank = _rank() if _rank is not None else int(os.environ.get("RANK", "0"))
    if rank != 0:
        return
    line = json.dumps({"budget": float(budget), "value": float(value)})
    with (Path(directory) / OBJECTIVES_FILE).open("a") as file:
        file.write(line + "\n")
