"""What a search knows. `step` owns a `SearchState` and may change it; all others only read it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from offcut.model.sweep import Sweep
from offcut.search.trials import ACTIVE, Trial

#: `finished`: all its trials are decided upon, or its budget is used. `failed`: its first trials all failed.
SearchPhase = Literal["running", "paused", "finished", "cancelled", "failed"]


@dataclass(slots=True)
class SearchState:
    """A search. Its decisions follow from the events that it has answered, in their order."""

    sweep: Sweep
    phase: SearchPhase = "running"
    #: By number: a number is in here before anything is asked for it or started.
    trials: dict[int, Trial] = field(default_factory=dict)
    #: The trials that used their whole budget, in the order in which they did.
    completed: list[int] = field(default_factory=list)
    #: How many trials are useful at once, as far as nodes are concerned. Order `logical`: not considered.
    slots: int = 1
    #: Order `logical`: the logical time of the newest result.
    clock: float = 0.0
    #: The budget that all results together took.
    used_budget: float = 0.0
    #: For how long nodes were assigned to all trials together, in node-seconds. Known where there is a limit.
    used_node_s: float = 0.0
    #: Whether a trial has reported: until then only one runs, so that a fault of the script shows once.
    proven: bool = False
    #: The trials that the executor was told to pause.
    paused: set[int] = field(default_factory=set)
    #: For a scheduler in a user's file: the number of the newest state that it is to be asked about, and of the newest
    #: one that it has answered.
    revision: int = 0
    answered: int = 0
    #: Why it failed, or why it was paused if not by its user.
    reason: str = ""

    @property
    def budget_is_used(self) -> bool:
        """Whether no trial may be started or resumed any more: a limit of the sweep is reached."""
        budget, node_hours = self.sweep.total_budget, self.sweep.max_node_hours
        return (budget is not None and self.used_budget >= budget) or (
            node_hours is not None and self.used_node_s >= node_hours * 3600.0
        )

    def active(self) -> list[Trial]:
        """Return the trials that run or are about to, by number."""
        return [trial for trial in self.trials.values() if trial.phase in ACTIVE]
