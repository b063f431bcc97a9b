"""Asks schedulers in users' files for decisions, in a process that is killed and replaced when it is late.

What a search waits for is in its state, and answers are events: nothing is lost with the process or the controller, and
no question is asked again that was answered. A scheduler that fails pauses its sweep, and the sweep says why.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import structlog

from offcut.control import State
from offcut.control.sweep_state import SweepState
from offcut.errors import InputError
from offcut.model import events
from offcut.model.sweep import SchedulerAnswer, SchedulerChoice, SchedulerTraits
from offcut.search.rungs import check_budgets
from offcut.search.schedulers.base import TrialScheduler
from offcut.search.schedulers.load import load
from offcut.search.state import SearchState
from offcut.search.user_scheduler import answers_for
from offcut.service.call_process import CallDiedError, CallProcess, CallTimeoutError

_log = structlog.get_logger()

#: How often the searches are looked at.
_LOOK_S = 0.05
#: The process is killed when all decisions that are due take longer than this.
DECIDE_LIMIT_S = 30.0
#: A process that died or was late is asked again this often before the sweep is paused.
_ATTEMPTS = 2


def is_user_file(name: str) -> bool:
    """Return whether a scheduler of this name is in a user's file: `FILE.py` or `FILE.py:CLASS`."""
    return name.partition(":")[0].endswith(".py")


async def describe(choice: SchedulerChoice) -> SchedulerTraits:
    """Load a user's scheduler in a process of its own, and return what it says of itself.

    Raises:
        InputError: it cannot be loaded, does not answer, or has not what a scheduler must have.
    """
    process = CallProcess(_no_warming)
    try:
        return await process.call(_traits, choice, limit_s=DECIDE_LIMIT_S)
    except (CallDiedError, CallTimeoutError) as error:
        raise InputError(f"scheduler {choice.name}: {error.what}", next_step="Correct the file.") from None
    finally:
        process.close()


def _no_warming() -> None:
    """Import nothing before the first call."""


def _traits(choice: SchedulerChoice) -> SchedulerTraits:
    scheduler = load(choice)
    try:
        found = SchedulerTraits(float(scheduler.max_budget), bool(scheduler.waits_at_rungs))
        check_budgets(max_budget=found.max_budget)
    except InputError as error:
        raise InputError(f"scheduler {choice.name}: {error.what}", next_step="Correct the file.") from None
    except Exception as error:
        raise InputError(
            f"scheduler {choice.name}: max_budget or waits_at_rungs: {type(error).__name__}: {error}.",
            next_step="Correct the file.",
        ) from None
    return found


def _file(choice: SchedulerChoice) -> Path:
    return Path(choice.name.partition(":")[0])


@lru_cache(maxsize=16)
def _loaded(choice: SchedulerChoice, changed_ns: int) -> TrialScheduler:
    return load.__wrapped__(choice)


def _decide(state: SearchState) -> tuple[SchedulerAnswer, ...] | str:
    """Return the scheduler's answers, or why there are none. Runs in the process, on a copy of the search."""
    choice, traits = state.sweep.scheduler, state.sweep.scheduler_traits
    assert traits is not None
    path = _file(choice)
    try:
        scheduler = _loaded(choice, path.stat().st_mtime_ns)
        return answers_for(state, scheduler, traits)
    except FileNotFoundError:
        return f"the scheduler's file {path} is not there any more"
    except InputError as error:
        return error.what.rstrip(".")
    except BaseException as error:  # of the user's code, SystemExit too
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f" (line {lines[-1]})" if lines else ""
        told = str(error).strip().partition("\n")[0]
        said = told if isinstance(error, ValueError) and not lines else f"{type(error).__name__}: {told}"
        return f"the scheduler {path.name} failed{where}: {said}"


class UserSchedulers:
    """Asks for the decisions of one sweep at a time, in the order of submission."""

    def __init__(
        self,
        state: State,
        now: Callable[[], float],
        handle: Callable[[events.Event], object],
        *,
        limit_s: float = DECIDE_LIMIT_S,
    ) -> None:
        """`handle` takes the answers. A process that takes longer than `limit_s` is killed."""
        self._state = state
        self._now = now
        self._handle = handle
        self._limit_s = limit_s
        self.process = CallProcess(_no_warming)

    async def keep(self) -> None:
        """Ask whenever a search waits for its scheduler, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Ask once for every sweep that waits for its scheduler."""
        for sweep in [sweep for sweep in self._state.sweeps.values() if _waits(sweep)]:
            revision = sweep.search.revision
            found = await self._ask(sweep.search)
            answered = isinstance(found, tuple)
            self._handle(
                events.SchedulerAnswered(
                    time_s=self._now(),
                    sweep=sweep.search.sweep.id,
                    revision=revision,
                    answers=found if isinstance(found, tuple) else (),
                    failure="" if answered else str(found),
                )
            )

    async def _ask(self, search: SearchState) -> tuple[SchedulerAnswer, ...] | str:
        failure = ""
        for _ in range(_ATTEMPTS):
            try:
                return await self.process.call(_decide, search, limit_s=self._limit_s)
            except (CallDiedError, CallTimeoutError) as error:
                failure = f"the scheduler {_file(search.sweep.scheduler).name} failed: {error.what.rstrip('.')}"
            _log.warning("scheduler_failed", sweep=search.sweep.id, reason=failure)
        return failure

    def close(self) -> None:
        """End the process at once."""
        self.process.close()


def _waits(sweep: SweepState) -> bool:
    search = sweep.search
    return search.sweep.scheduler_traits is not None and search.phase == "running" and search.revision > search.answered
