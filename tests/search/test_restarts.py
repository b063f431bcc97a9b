"""A process that stops at any event and folds its journal again loses no trial and runs none twice."""

from __future__ import annotations

import copy

import pytest
from executor import SCHEDULERS, Executor, suggested_by_results, sweep_of
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.search import begin, step
from offcut.search import events as ev
from offcut.search.trials import FINAL

CASES = st.sampled_from(sorted(SCHEDULERS))


@settings(max_examples=30, deadline=None)
@given(
    scheduler=CASES,
    order=st.sampled_from(["arrival", "logical"]),
    seed=st.integers(0, 10**6),
    stops=st.sets(st.integers(1, 300), max_size=12),
    suggester=st.sampled_from(["random", "optuna"]),
)
def test_no_trial_is_lost_or_started_twice(
    scheduler: str, order: str, seed: int, stops: set[int], suggester: str
) -> None:
    sweep = sweep_of(
        scheduler, **SCHEDULERS[scheduler], max_trials=25, order=order, parallel=6, suggester=suggester, seed=seed
    )

    def fails(number: int) -> float | None:
        return 1.0 if number % 7 == 3 else None

    executor = Executor(sweep, nodes=6, seed=seed, reclaim=0.2, fails=fails, answer=suggested_by_results)
    for tick in range(5000):
        if tick in stops:
            executor.restart()
        if executor.state.phase != "running":
            break
        executor.tick()
    state = executor.state
    assert state.phase == "finished"
    assert set(executor.started) == set(state.trials)
    assert all(trial.phase in FINAL or trial.phase == "halted" for trial in state.trials.values())
    if scheduler != "pbt":
        assert len(state.trials) == 25


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_work_that_is_reported_twice_counts_once(scheduler: str) -> None:
    """After the death of a trial's last member its work since the last checkpoint is done, and reported, again."""
    sweep = sweep_of(scheduler, **SCHEDULERS[scheduler], max_trials=20, seed=2)
    once = Executor(sweep, seed=4).run()
    state, effects = begin(sweep, 8)
    for event in once.journal:
        effects += step(state, event)
        if isinstance(event, ev.TrialReported):
            before = copy.deepcopy(state)
            assert step(state, event) == []
            assert state == before
    assert state == once.state


def test_what_does_not_fit_changes_nothing() -> None:
    executor = Executor(sweep_of("asha", max_budget=9.0, max_trials=9, seed=2)).run()
    before = copy.deepcopy(executor.state)
    stopped = next(number for number, trial in executor.state.trials.items() if trial.phase == "completed")
    for event in (
        ev.TrialReported(99, 1.0, 0.0),
        ev.TrialReported(stopped, 50.0, 0.0),
        ev.TrialEnded(stopped, True, "late"),
        ev.ParametersSuggested(stopped, {"lr": 0.5, "depth": 1}),
        ev.SuggestionFailed(99, "?"),
        ev.SearchPaused(),
        ev.SearchResumed(),
    ):
        assert step(executor.state, event) == []
        assert executor.state == before
