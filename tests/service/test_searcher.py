"""The searcher: Optuna's suggestions, a process that dies or hangs, and studies that cannot be stored."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

import searchers_that_fail
from offcut.control import State
from offcut.control.sweep_state import SweepState
from offcut.errors import ServiceError
from offcut.model import Job, Sizes
from offcut.model import events as ev
from offcut.model.search_space import (
    CategoricalParameter,
    Condition,
    FloatParameter,
    IntParameter,
    ParameterValues,
    SearchSpace,
)
from offcut.model.sweep import SchedulerChoice, Sweep
from offcut.search import begin, step
from offcut.search import events as search_events
from offcut.service.searcher.optuna_process import store, suggest
from offcut.service.searcher.questions import question_of
from offcut.service.searcher.searcher import Searcher

SPACE = SearchSpace(
    (
        FloatParameter(name="lr", low=1e-4, high=1.0, log=True),
        CategoricalParameter(name="optimizer", choices=("sgd", "adam")),
        FloatParameter(name="momentum", low=0.0, high=0.9, when=Condition("optimizer", ("sgd",))),
        IntParameter(name="width", low=4, high=63, step=4),
    )
)


def sweep_state(**fields: Any) -> SweepState:
    job = Job(id="s-1", name="s", command=("t.py",), sizes=Sizes.parse("1"))
    options = {"scheduler": SchedulerChoice("asha", (("max_budget", 9.0),)), "max_trials": 60, "space": SPACE} | fields
    return SweepState(begin(Sweep(id="s-1", name="s", job=job, suggester="optuna", **options), slots=4)[0], 0.0)


def objective(values: ParameterValues) -> float:
    """Return a loss that is least at lr = 0.01 and width = 32."""
    return abs(float(values["lr"]) - 0.01) + abs(float(values["width"]) - 32) / 100


def searched(sampler: str = "tpe", trials: int = 40) -> SweepState:
    """Run a search with Optuna's suggestions, one trial after the other."""
    scheduler = SchedulerChoice("none", (("max_budget", 1.0),))
    sweep = sweep_state(sampler=sampler, scheduler=scheduler, max_trials=trials, parallel=1)
    for number in range(trials):
        values = suggest(question_of(sweep), number)
        SPACE.check(values)
        step(sweep.search, search_events.ParametersSuggested(number, values))
        step(sweep.search, search_events.TrialReported(number, 1.0, objective(values)))
    return sweep


def test_suggestions_learn_from_results() -> None:
    trials = searched().search.trials
    values = [trials[number].value or 0.0 for number in range(40)]
    assert sum(values[30:]) < 0.7 * sum(values[:10])


def test_a_suggestion_depends_on_the_sweep_alone() -> None:
    sweep = searched(trials=15)
    again = searched(trials=15)
    assert [trial.parameters for trial in sweep.search.trials.values()] == [
        trial.parameters for trial in again.search.trials.values()
    ]
    assert suggest(question_of(sweep), 15) == suggest(question_of(again), 15)


def test_halted_trials_are_learned_from_and_reports_ahead_are_not() -> None:
    sweep = sweep_state(order="logical", parallel=4)
    for number in range(4):
        step(sweep.search, search_events.ParametersSuggested(number, suggest(question_of(sweep), number)))
    step(sweep.search, search_events.TrialReported(0, 1.0, 0.5))
    # Trial 0 waits for the others' results at this logical time.
    assert [known.outcome for known in question_of(sweep).trials] == ["running"] * 4
    for number in range(1, 4):
        step(sweep.search, search_events.TrialReported(number, 1.0, 0.5 + number))
    assert [known.outcome for known in question_of(sweep).trials][:4] == ["pruned"] * 4
    assert question_of(sweep).trials[0].results == ((1.0, 0.5),)


def stored(path: Path) -> optuna.Study:
    return optuna.load_study(study_name="s-1", storage=f"sqlite:///{path}")


def test_the_stored_study_follows_the_sweep(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'o.sqlite'}"
    sweep = sweep_state(parallel=3, scheduler=SchedulerChoice("asha", (("max_budget", 3.0),)), max_trials=3)
    values: ParameterValues = {"lr": 0.1, "optimizer": "adam", "width": 8}
    step(sweep.search, search_events.ParametersSuggested(0, values))
    store(question_of(sweep), url)
    assert [trial.state for trial in stored(tmp_path / "o.sqlite").trials] == [TrialState.RUNNING]
    step(sweep.search, search_events.TrialReported(0, 1.0, 0.5))
    for number in (1, 2):
        step(sweep.search, search_events.ParametersSuggested(number, values))
        step(sweep.search, search_events.TrialReported(number, 1.0, 0.6))
    step(sweep.search, search_events.TrialReported(0, 3.0, 0.25))
    assert sweep.search.phase == "finished"
    for _ in range(2):
        store(question_of(sweep), url)
        trials = stored(tmp_path / "o.sqlite").trials
        assert [trial.state for trial in trials] == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.PRUNED]
        assert trials[0].intermediate_values == {1: 0.5, 3: 0.25}
        assert trials[0].params == values
    assert stored(tmp_path / "o.sqlite").best_value == 0.25


def test_a_study_with_another_space_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'o.sqlite'}"
    store(question_of(sweep_state()), url)
    other = sweep_state(space=SearchSpace((FloatParameter(name="lr", low=0.1, high=1.0),)))
    with pytest.raises(ServiceError, match="A study called s-1 exists with another search space"):
        store(question_of(other), url)


def test_a_storage_that_cannot_be_written_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"The study cannot be stored in sqlite:.*unable to open database file"):
        store(question_of(sweep_state()), f"sqlite:///{tmp_path / 'missing' / 'o.sqlite'}")


def looked(suggest_in_process: Any, limit_s: float, tmp_path: Path) -> list[ev.TrialSuggested]:
    """Let the searcher answer the first trial of a sweep; return what it told."""
    state = State()
    state.sweeps["s-1"] = sweep_state()
    told: list[ev.TrialSuggested] = []

    def handle(event: ev.Event) -> None:
        assert isinstance(event, ev.TrialSuggested)
        told.append(event)
        state.sweeps["s-1"].search.trials[event.trial].phase = "ready"

    async def main() -> None:
        searcher = Searcher(
            state,
            tmp_path / "o.sqlite",
            lambda: 1.0,
            handle,
            suggest=suggest_in_process,
            warm=searchers_that_fail.no_warming,
            suggest_limit_s=limit_s,
        )
        await searcher.look()
        searcher.close()

    asyncio.run(main())
    return told


@pytest.mark.parametrize(
    ("fault", "limit_s", "why"),
    [
        (searchers_that_fail.die, 60.0, "the searcher: Its process died."),
        (searchers_that_fail.hang, 0.2, "the searcher: It did not answer within 0.2 s and was killed."),
        (searchers_that_fail.raise_error, 60.0, "Optuna: ValueError: no such distribution"),
    ],
    ids=["dies", "hangs", "raises"],
)
def test_a_searcher_that_fails_is_told_and_loses_no_trial(fault: Any, limit_s: float, why: str, tmp_path: Path) -> None:
    (told,) = looked(fault, limit_s, tmp_path)
    assert (told.trial, told.parameters, told.failure) == (0, {}, why)


def test_a_storage_that_is_locked_does_not_delay_suggestions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offcut.service.searcher.searcher.STORE_LIMIT_S", 1.0)
    path = tmp_path / "o.sqlite"
    store(question_of(sweep_state()), f"sqlite:///{path}")
    lock = sqlite3.connect(path)
    lock.execute("BEGIN EXCLUSIVE")
    state = State()
    state.sweeps["s-1"] = sweep_state()
    told: list[ev.Event] = []

    async def main() -> None:
        searcher = Searcher(state, path, lambda: 1.0, told.append)
        await searcher.store_studies()
        searcher.close()

    step(
        state.sweeps["s-1"].search,
        search_events.ParametersSuggested(0, {"lr": 0.1, "optimizer": "adam", "width": 8}),
    )
    asyncio.run(main())
    lock.close()
    (note,) = told
    assert isinstance(note, ev.JobNoted)
    assert note.text == "It did not answer within 1 s and was killed."


def test_a_study_that_could_not_be_stored_is_stored_later_and_a_final_one_once(tmp_path: Path) -> None:
    state, clock = State(), [1.0]
    sweep = state.sweeps["s-1"] = sweep_state()
    values: ParameterValues = {"lr": 0.1, "optimizer": "adam", "width": 8}
    step(sweep.search, search_events.ParametersSuggested(0, values))
    step(sweep.search, search_events.SearchCancelled())
    sweep.ended_s = 1.0
    told: list[ev.Event] = []
    calls = 0

    async def main() -> None:
        searcher = Searcher(state, tmp_path / "o.sqlite", lambda: clock[0], told.append)

        async def call(*_: Any, **__: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 1:
                raise ServiceError("The study cannot be stored: database is locked.")

        searcher._store_process.call = call  # type: ignore[method-assign,assignment]
        for clock[0] in (1.0, 3.0, 62.0, 64.0, 200.0):
            await searcher.store_studies()
        searcher.close()

    asyncio.run(main())
    assert calls == 2
    texts = [event.text for event in told if isinstance(event, ev.JobNoted)]
    assert texts == ["The study cannot be stored: database is locked.", "the study is stored again"]
