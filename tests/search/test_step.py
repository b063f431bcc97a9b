"""A search answers its events: the first trial, objectives that are missing, limits, what users ask for."""

from __future__ import annotations

import math

from executor import Executor, sweep_of

from offcut.model.search_space import CategoricalParameter, SearchSpace
from offcut.search import begin, reissue, step
from offcut.search import events as ev
from offcut.search.trials import best


def started(effects: list[ev.SearchEffect]) -> list[int]:
    return [effect.trial for effect in effects if isinstance(effect, ev.StartTrial)]


def texts(effects: list[ev.SearchEffect]) -> list[str]:
    return [effect.text for effect in effects if isinstance(effect, ev.LogDecision)]


def test_one_trial_runs_before_the_rest() -> None:
    for order, ready in (("arrival", 1), ("logical", 4)):
        state, effects = begin(sweep_of("asha", max_budget=9.0, parallel=4, order=order), slots=9)
        assert started(effects) == [0]
        assert len(state.trials) == ready
        assert started(step(state, ev.TrialReported(0, 0.5, 1.0))) == [1, 2, 3]


def test_the_next_trial_is_the_probe_if_the_first_fails() -> None:
    for order in ("arrival", "logical"):
        state, _ = begin(sweep_of("none", max_budget=9.0, parallel=4, order=order), slots=9)
        assert started(step(state, ev.TrialEnded(0, True, "ImportError: x"))) == [1]
        assert started(step(state, ev.TrialEnded(1, True, "ImportError: x"))) == [2]
        effects = step(state, ev.TrialEnded(2, True, "ImportError: x"))
        assert state.phase == "failed"
        assert state.reason == "its first 3 trials failed, the last one: ImportError: x"
        assert started(effects) == []
        assert state.active() == []
        shown = [(trial.phase, trial.reason) for trial in state.trials.values()]
        assert shown[:3] == [("failed", "ImportError: x")] * 3


def test_an_objective_that_is_never_reported_is_told() -> None:
    state, _ = begin(sweep_of("none", max_budget=9.0, max_trials=1), slots=1)
    effects = step(state, ev.TrialEnded(0, False))
    assert "failed: its script ended without reporting its objective" in texts(effects)
    assert state.phase == "failed"


def test_nan_counts_as_the_worst_value_and_is_told() -> None:
    state, _ = begin(sweep_of("asha", max_budget=9.0, max_trials=3, parallel=1), slots=1)
    assert "its objective is NaN at budget 1: that counts as the worst" in texts(
        step(state, ev.TrialReported(0, 1.0, math.nan))
    )
    step(state, ev.TrialReported(1, 1.0, 5.0))
    effects = step(state, ev.TrialReported(2, 1.0, 7.0))
    assert "promoted from budget 1 to 3" in texts(effects)
    assert state.trials[1].phase == "running"
    found = best(state.trials, "minimize")
    assert found is not None
    assert (found[0].number, found[1].value) == (1, 5.0)


def test_three_trials_without_a_number_promote_none() -> None:
    state, _ = begin(sweep_of("asha", max_budget=9.0, max_trials=3, parallel=1), slots=1)
    for number in range(3):
        step(state, ev.TrialReported(number, 1.0, math.nan))
    assert state.phase == "finished"
    assert best(state.trials, "minimize") is None


def test_a_script_that_ends_before_a_rung_has_its_last_value_there() -> None:
    executor = Executor(sweep_of("asha", max_budget=27.0, max_trials=9, parallel=3), nodes=3, epochs=5.0).run()
    completed = [trial for trial in executor.state.trials.values() if trial.phase == "completed"]
    assert completed
    assert all([result.budget for result in trial.results] == [1, 3, 9] for trial in completed)
    assert all(trial.last_report.budget == 5.0 for trial in completed)


def test_no_more_trials_run_than_nodes_are_useful_for() -> None:
    sweep = sweep_of("none", max_budget=4.0, max_trials=12, parallel=8)
    state, _ = begin(sweep, slots=0)
    assert state.trials == {}
    assert state.phase == "running"
    step(state, ev.SlotsChanged(3))
    step(state, ev.TrialReported(0, 1.0, 1.0))
    assert len(state.active()) == 3
    assert started(step(state, ev.SlotsChanged(20))) == [3, 4, 5, 6, 7]
    assert step(state, ev.SlotsChanged(1)) == []
    assert len(state.active()) == 8


def test_no_trial_starts_once_the_budget_is_used() -> None:
    sweep = sweep_of("none", max_budget=4.0, max_trials=100, parallel=2, total_budget=12.0)
    executor = Executor(sweep, nodes=2).run()
    assert 3 <= len(executor.state.trials) <= 4
    assert executor.state.phase == "finished"


def test_a_grid_ends_with_its_last_point() -> None:
    space = SearchSpace((CategoricalParameter(name="lr", choices=(0.1, 0.2, 0.3)),))
    executor = Executor(sweep_of("none", space=space, max_budget=2.0, suggester="grid")).run()
    assert [trial.parameters for trial in executor.state.trials.values()] == [{"lr": 0.1}, {"lr": 0.2}, {"lr": 0.3}]


def test_a_paused_sweep_runs_nothing_and_goes_on_where_it_was() -> None:
    sweep = sweep_of("asha", max_budget=9.0, max_trials=12, parallel=4, order="logical")
    undisturbed = Executor(sweep, nodes=4, seed=1).run()
    executor = Executor(sweep, nodes=4, seed=1)
    for _ in range(10):
        for _ in range(5):
            executor.tick()
        executor.tell(ev.SearchPaused())
        assert all(script.paused for script in executor.scripts.values() if script.budget < 9)
        for _ in range(5):
            executor.tick()
        executor.tell(ev.SearchResumed())
    executor.run()
    assert [line for line in executor.decisions() if line[0] is not None] == [
        line for line in undisturbed.decisions() if line[0] is not None
    ]


def test_a_cancelled_sweep_stops_its_trials() -> None:
    executor = Executor(sweep_of("asha", max_budget=9.0, parallel=4), nodes=4)
    for _ in range(30):
        executor.tick()
    executor.tell(ev.SearchCancelled())
    assert executor.state.phase == "cancelled"
    assert all(trial.phase in ("stopped", "completed") for trial in executor.state.trials.values())
    assert not [script for script in executor.scripts.values() if script.budget < 9]
    executor.tell(ev.SearchExtended(max_trials=1000))
    assert executor.state.phase == "cancelled"


def test_an_extended_sweep_goes_on_and_promotes_halted_trials() -> None:
    executor = Executor(sweep_of("asha", max_budget=9.0, max_trials=9, parallel=2), nodes=2).run()
    whole = Executor(sweep_of("asha", max_budget=9.0, max_trials=27, parallel=2), nodes=2).run()
    executor.tell(ev.SearchExtended(max_trials=27))
    executor.run()
    assert len(executor.state.trials) == 27
    at_end = sum(trial.phase == "completed" for trial in executor.state.trials.values())
    assert at_end == sum(trial.phase == "completed" for trial in whole.state.trials.values()) == 3


def test_a_suggestion_outside_the_space_is_told_and_replaced() -> None:
    state, effects = begin(sweep_of("none", max_budget=9.0, suggester="optuna"), slots=1)
    assert effects[-1] == ev.AskParameters(0)
    assert reissue(state) == [ev.AskParameters(0)]
    effects = step(state, ev.ParametersSuggested(0, {"lr": 99.0, "depth": 1}))
    assert texts(effects)[0].startswith("the suggestion is not in the search space (lr: 99.0 lies outside")
    assert started(effects) == [0]
    state.sweep.space.check(state.trials[0].parameters)
    assert reissue(state) == []


def test_a_suggester_that_fails_costs_no_trial() -> None:
    state, _ = begin(sweep_of("none", max_budget=9.0, suggester="optuna"), slots=1)
    effects = step(state, ev.SuggestionFailed(0, "its process died"))
    assert texts(effects)[0] == "no suggestion (its process died): its parameters are drawn at random"
    assert started(effects) == [0]


def test_a_report_of_a_script_from_before_a_copy_does_not_count() -> None:
    sweep = sweep_of("pbt", max_budget=9.0, population=4, parallel=4)
    state, _ = begin(sweep, slots=4)
    for number, value in ((0, 4.0), (1, 3.0), (2, 2.0), (3, 1.0)):
        step(state, ev.TrialReported(number, 1.0, value))
    effects = step(state, ev.TrialReported(0, 2.0, 4.0))
    copied = next(effect for effect in effects if isinstance(effect, ev.CopyState))
    assert (copied.trial, copied.leg, copied.source, copied.source_budget) == (0, 1, 3, 1.0)
    assert state.trials[0].rung_budget == 2.0
    assert step(state, ev.TrialReported(0, 3.0, 0.0, leg=0)) == []
    step(state, ev.TrialReported(0, 2.0, 0.9, leg=1))
    assert state.trials[0].value == 0.9
