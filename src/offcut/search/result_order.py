"""Which results take part in decisions next.

Order `arrival`: each as soon as it is known.

Order `logical`: as on a machine that runs `parallel` trials at once and on which every unit of budget takes the same
time, whatever the trial. A trial that is started or resumed at logical time t with cumulative budget b has its result
at budget c at time t + (c - b). Results take part by that time, then by trial number; one that is there early waits for
those before it. The time at which a result arrives has no influence then, and neither have reclaims.
"""

from __future__ import annotations

from offcut.search.state import SearchState
from offcut.search.trials import ACTIVE, Trial

#: Logical times are compared to this many decimals: budgets such as 0.1 are not exact.
_DECIMALS = 9


def has_outcome(trial: Trial) -> bool:
    """Return whether the trial's result at its next rung is known, or will never come."""
    return bool(trial.reports) or trial.end is not None


def logical_time(trial: Trial) -> float:
    """Return the logical time of the trial's next result."""
    return round(trial.clock + (trial.rung_budget - trial.clock_budget), _DECIMALS)


def awaited(state: SearchState) -> list[int]:
    """Return the numbers of the trials without which no further result takes part in decisions, in order."""
    asked = [trial.number for trial in state.trials.values() if trial.phase == "asked"]
    if state.sweep.order == "arrival" or asked:
        return asked if state.sweep.order == "logical" else []
    running = [trial for trial in state.trials.values() if trial.phase in ("ready", "running")]
    time = min((logical_time(trial) for trial in running), default=0.0)
    return [trial.number for trial in running if logical_time(trial) == time and not has_outcome(trial)]


def next_outcomes(state: SearchState) -> list[Trial]:
    """Return the trials whose outcomes take part in decisions now, together, by number. Empty: none does yet."""
    active = [trial for trial in state.trials.values() if trial.phase in ACTIVE]
    if state.sweep.order == "arrival":
        return next(([trial] for trial in active if trial.phase != "asked" and has_outcome(trial)), [])
    if not active or any(trial.phase == "asked" for trial in active):
        return []  # a suggestion takes no logical time
    times = [logical_time(trial) for trial in active]
    time = min(times)
    due = [trial for trial, its in zip(active, times, strict=True) if its == time]
    if not all(has_outcome(trial) for trial in due):
        return []
    state.clock = time
    return due
