"""Asks Optuna for the parameters that searches wait for, in a process that is killed and replaced when it is late.

What a search waits for is in its state, so that nothing is lost with the process or with the controller. If there is no
answer after several attempts, the parameters are drawn at random, and the sweep's log says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import structlog

from offcut.control import State
from offcut.control.sweep_state import SweepState
from offcut.errors import InputError, OffcutError
from offcut.model import events
from offcut.model.search_space import ParameterValues
from offcut.service.call_process import CallDiedError, CallProcess, CallTimeoutError
from offcut.service.searcher.questions import StudyQuestion, question_of

_log = structlog.get_logger()

#: How often the searches are looked at, and their studies stored.
_LOOK_S = 0.1
_STORE_S = 2.0
#: A study that could not be stored is tried again after this.
_STORE_AGAIN_S = 60.0
#: The process is killed when a suggestion takes longer than this, or when a study cannot be stored in this time.
SUGGEST_LIMIT_S = 60.0
STORE_LIMIT_S = 20.0
#: A suggestion is asked for this often before the parameters are drawn at random.
_ATTEMPTS = 3


def check_optuna() -> None:
    """Raise InputError unless Optuna is installed where the controller runs."""
    if find_spec("optuna") is None:
        raise InputError(
            "suggest: Optuna is not installed where the controller runs.",
            next_step="Install offcut[sweep], or choose 'random'.",
        )


def _warm() -> None:
    from offcut.service.searcher import optuna_process

    optuna_process.warm()


def _suggest(question: StudyQuestion, number: int) -> ParameterValues:
    from offcut.service.searcher import optuna_process

    return optuna_process.suggest(question, number)


def _store(question: StudyQuestion, url: str) -> None:
    from offcut.service.searcher import optuna_process

    optuna_process.store(question, url)


class Searcher:
    """Answers one question at a time, in the order of the trials."""

    def __init__(
        self,
        state: State,
        storage: Path,
        now: Callable[[], float],
        handle: Callable[[events.Event], object],
        *,
        suggest: Callable[[StudyQuestion, int], ParameterValues] = _suggest,
        warm: Callable[[], None] = _warm,
        suggest_limit_s: float = SUGGEST_LIMIT_S,
    ) -> None:
        """`storage` is the SQLite file of the studies. `suggest` runs in the process, after `warm`."""
        self._state = state
        self._url = f"sqlite:///{storage}"
        self._now = now
        self._handle = handle
        self._suggest = suggest
        self._suggest_limit_s = suggest_limit_s
        #: Two processes, so that a storage that hangs delays no suggestion.
        self.process = CallProcess(warm)
        self._store_process = CallProcess(_warm)
        #: By study: what was stored last, and why it could not be.
        self._stored: dict[str, StudyQuestion] = {}
        self._troubles: dict[str, str] = {}
        #: By study that could not be stored: when that is tried again.
        self._store_again_s: dict[str, float] = {}
        #: By study of a sweep that has ended: the time of its end. It is not looked at again.
        self._stored_at_end: dict[str, float] = {}

    async def keep(self) -> None:
        """Answer what searches wait for, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Suggest the parameters of every trial that waits for them."""
        while (waiting := self._first_waiting()) is not None:
            sweep, number = waiting
            parameters, failure = await self._ask(question_of(sweep), number)
            self._handle(
                events.TrialSuggested(
                    time_s=self._now(),
                    sweep=sweep.search.sweep.id,
                    trial=number,
                    parameters=parameters,
                    failure=failure,
                )
            )

    def _first_waiting(self) -> tuple[SweepState, int] | None:
        for sweep in self._state.sweeps.values():
            if sweep.search.phase == "running":
                for trial in sweep.search.trials.values():
                    if trial.phase == "asked":
                        return sweep, trial.number
        return None

    async def _ask(self, question: StudyQuestion, number: int) -> tuple[ParameterValues, str]:
        """Return the parameters, or none and why there are none."""
        failure = ""
        for _ in range(_ATTEMPTS):
            try:
                return await self.process.call(self._suggest, question, number, limit_s=self._suggest_limit_s), ""
            except (CallDiedError, CallTimeoutError) as error:
                failure = f"the searcher: {error.what}"
            except Exception as error:  # whatever a sampler raises, the search goes on
                failure = f"Optuna: {type(error).__name__}: {error}"
                break
            _log.warning("suggestion_failed", study=question.study, trial=number, reason=failure)
        return {}, failure

    async def keep_studies(self) -> None:
        """Store the studies of sweeps that Optuna suggests for, until cancelled."""
        while True:
            await asyncio.sleep(_STORE_S)
            await self.store_studies()

    async def store_studies(self) -> None:
        """Store the studies that have changed."""
        for sweep in list(self._state.sweeps.values()):
            study = sweep.search.sweep.id
            # That of a sweep which has ended is stored once more, and not looked at again.
            final = sweep.ended_s is not None and self._stored_at_end.get(study) == sweep.ended_s
            waits = self._now() < self._store_again_s.get(study, 0.0)
            if sweep.search.sweep.suggester == "optuna" and not final and not waits:
                await self._store_study(study, question_of(sweep), sweep.ended_s)

    async def _store_study(self, study: str, question: StudyQuestion, ended_s: float | None) -> None:
        trouble = ""
        if self._stored.get(study) != question:
            try:
                await self._store_process.call(_store, question, self._url, limit_s=STORE_LIMIT_S)
            except OffcutError as error:
                trouble = error.what
        if trouble:
            self._store_again_s[study] = self._now() + _STORE_AGAIN_S
        else:
            self._stored[study] = question
            if ended_s is not None:
                self._stored_at_end[study] = ended_s
        if trouble != self._troubles.get(study, ""):
            self._troubles[study] = trouble
            text = trouble or "the study is stored again"
            _log.warning("study", study=study, text=text)
            self._handle(events.JobNoted(time_s=self._now(), job=study, text=text))

    def close(self) -> None:
        """End both processes at once."""
        self.process.close()
        self._store_process.close()
