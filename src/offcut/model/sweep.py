"""The sweep: a search over the parameters of a training job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from offcut.errors import InputError
from offcut.model.job import Job
from offcut.model.search_space import ParameterValue, ParameterValues, SearchSpace

Direction = Literal["minimize", "maximize"]
#: When a trial's result takes part in decisions. `arrival`: as soon as it is known. `logical`: in the order of a
#: machine on which every unit of budget takes the same time, so that decisions do not depend on when nodes come and go.
ResultOrder = Literal["arrival", "logical"]
#: Who chooses the parameters of a trial. `optuna`: a process of its own, by ask and tell.
Suggester = Literal["random", "grid", "optuna"]


@dataclass(frozen=True, slots=True)
class SchedulerChoice:
    """A trial scheduler by its name (or `FILE.py:CLASS`), with its options."""

    name: str
    options: tuple[tuple[str, ParameterValue], ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerTraits:
    """What a scheduler in a user's file has said of itself when the sweep was submitted."""

    max_budget: float
    waits_at_rungs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerAnswer:
    """What a scheduler in a user's file answered to one call; see `offcut.search.schedulers.base`."""

    call: Literal["next_rung", "decide", "next_trial"]
    #: The trial that the call was about; None for `next_trial`.
    trial: int | None = None
    action: Literal["rung", "continue", "halt", "stop", "exploit", "start", "resume", "none"]
    #: `rung`: the cumulative budget.
    budget: float = 0.0
    #: `exploit`: the source. `resume`: the trial. `start`: the bracket.
    number: int = 0
    reason: str = ""
    parameters: ParameterValues | None = None
    parent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A search: a space of parameters, a job that is trained with them, and who decides what is tried.

    Budgets are cumulative and in the unit in which the script reports its objective: epochs or steps, say.
    """

    id: str
    name: str
    #: What every trial runs; a trial's own job has another id, and its parameters.
    job: Job
    space: SearchSpace
    scheduler: SchedulerChoice
    #: For a scheduler in a user's file: the controller never loads the file. None: one of offcut's own.
    scheduler_traits: SchedulerTraits | None = None
    direction: Direction = "minimize"
    suggester: Suggester = "random"
    #: Optuna's sampler: `tpe`, `random`, `cmaes`, ....
    sampler: str = "tpe"
    seed: int = 0
    #: At most this many trials are started.
    max_trials: int = 100
    #: No trial is started or resumed once all together have used this much budget; None: no limit.
    total_budget: float | None = None
    #: No trial is started or resumed once nodes were assigned to all together for this long, in node-hours; None: no
    #: limit.
    max_node_hours: float | None = None
    order: ResultOrder = "arrival"
    #: How many trials run at once, at most. Order `logical`: exactly this many, as far as decisions are concerned.
    parallel: int = 8
    #: Whether the parameters are arguments of the script (`--name=value`); in its environment they are in any case.
    arguments: bool = True
    #: The sweep fails if its first trials, this many, all fail.
    max_failed_first: int = 3

    def __post_init__(self) -> None:
        if self.max_trials < 1:
            raise InputError(f"max_trials must be at least 1, not {self.max_trials}.")
        if self.parallel < 1:
            raise InputError(f"parallel must be at least 1, not {self.parallel}.")
        if self.total_budget is not None and not self.total_budget > 0:
            raise InputError(f"total_budget must be greater than 0, not {self.total_budget:g}.")
        if self.max_node_hours is not None and not self.max_node_hours > 0:
            raise InputError(f"max_node_hours must be greater than 0, not {self.max_node_hours:g}.")
        if not self.space.parameters and self.max_trials > 1 and self.suggester != "random":
            raise InputError("space: it has no parameters.", next_step="Name what is searched over.")
