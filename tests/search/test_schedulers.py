"""The schedulers decide as their papers say."""

from __future__ import annotations

import pytest
from executor import Executor, path_loss, sweep_of

from offcut.errors import InputError
from offcut.model.sweep import SchedulerChoice
from offcut.search import begin, step
from offcut.search import events as ev
from offcut.search.rungs import bracket_count, bracket_table, geometric_rungs
from offcut.search.schedulers.load import BUILT_IN, load
from offcut.search.trials import TrialEnd


def constant_losses(losses: dict[int, float]):
    return lambda number, path, budget: losses[number]


def test_hyperbands_brackets_are_those_of_the_paper() -> None:
    """R = 81, η = 3: the example of Li et al. 2018, with the numbers of trials that their algorithm 1 gives."""
    assert bracket_count(1, 81, 3) == 5
    table = bracket_table(5, 81, 3)
    assert table[0] == [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)]
    assert table[1] == [(34, 3), (11, 9), (3, 27), (1, 81)]
    assert table[2] == [(15, 9), (5, 27), (1, 81)]
    assert table[3] == [(8, 27), (2, 81)]
    assert table[4] == [(5, 81)]


@pytest.mark.parametrize(("least", "most", "brackets"), [(1, 1, 1), (1, 2.9, 1), (1, 3, 2), (2, 17, 2), (1, 243, 6)])
def test_the_number_of_brackets(least: float, most: float, brackets: int) -> None:
    assert bracket_count(least, most, 3) == brackets


def test_rungs_end_at_the_whole_budget() -> None:
    assert geometric_rungs(1, 27, 3) == (1, 3, 9, 27)
    assert geometric_rungs(1, 30, 3) == (1, 3, 9, 27, 30)
    assert geometric_rungs(5, 5, 4) == (5,)


def test_promotion_asha_promotes_as_soon_as_a_trial_is_among_the_best_third() -> None:
    """The toy example of Li et al. 2020, figure 2: one worker, 9 trials, of which 1, 6 and 8 are the best (from 1)."""
    losses = {0: 0.3, 1: 0.9, 2: 0.8, 3: 0.7, 4: 0.95, 5: 0.2, 6: 0.6, 7: 0.1, 8: 0.99}
    sweep = sweep_of("asha", max_budget=9.0, max_trials=9, parallel=1)
    executor = Executor(sweep, nodes=1, loss=constant_losses(losses)).run()
    rungs = [
        (line.trial, line.text.split()[0].rstrip(":"))
        for line in executor.log
        if line.trial is not None and line.text.startswith(("new", "promoted"))
    ]
    assert rungs == [
        *((0, "new"), (1, "new"), (2, "new"), (0, "promoted")),
        *((3, "new"), (4, "new"), (5, "new"), (5, "promoted")),
        *((6, "new"), (7, "new"), (7, "promoted"), (7, "promoted")),
        (8, "new"),
    ]
    assert executor.state.trials[7].phase == "completed"
    assert [result.budget for result in executor.state.trials[7].results] == [1, 3, 9]


def test_a_trial_that_is_promoted_at_once_is_not_halted() -> None:
    sweep = sweep_of("asha", max_budget=9.0, max_trials=3, parallel=1)
    executor = Executor(sweep, nodes=1, loss=constant_losses({0: 3, 1: 2, 2: 1})).run()
    # Trial 2 is the best of three when it halts, and is promoted within the same event.
    assert executor.state.paused == {0, 1, 2} - {2} | ({2} if executor.state.trials[2].phase == "halted" else set())
    assert [result.budget for result in executor.state.trials[2].results] == [1, 3]


def test_stopping_asha_stops_what_is_not_among_the_best_third() -> None:
    losses = {0: 0.5, 1: 0.6, 2: 0.4, 3: 0.45, 4: 0.9}
    sweep = sweep_of("asha-stopping", max_budget=9.0, max_trials=5, parallel=1)
    executor = Executor(sweep, nodes=1, loss=constant_losses(losses)).run()
    phases = {number: trial.phase for number, trial in executor.state.trials.items()}
    # The first is the best of one; 1 is second of two, of which one may go on; 3 is second of four, of which two may.
    assert phases == {0: "completed", 1: "stopped", 2: "completed", 3: "stopped", 4: "stopped"}
    assert [result.budget for result in executor.state.trials[3].results] == [1, 3]
    assert executor.state.trials[1].reason == "not among the best 1 of 2 at budget 1"


def test_hyperband_promotes_when_a_rung_is_complete() -> None:
    sweep = sweep_of("hyperband", max_budget=9.0, max_trials=17, parallel=4)
    executor = Executor(sweep, nodes=4, loss=lambda number, path, budget: number).run()
    trials = executor.state.trials
    reached = {number: trial.budget for number, trial in trials.items()}
    # Brackets: 9 trials from budget 1, 5 from budget 3, 3 from budget 9. The smaller the number, the better.
    assert [reached[n] for n in range(9)] == [9, 3, 3, 1, 1, 1, 1, 1, 1]
    assert [reached[n] for n in range(9, 14)] == [9, 3, 3, 3, 3]
    assert [reached[n] for n in range(14, 17)] == [9, 9, 9]


def test_median_stopping_compares_the_best_value_with_the_averages_of_others() -> None:
    def loss(number: int, path: object, budget: float) -> float:
        return {0: 1.0, 1: 2.0, 2: 3.0, 3: 2.5, 4: 1.9}[number] - 0.1 * budget

    sweep = sweep_of("median-stopping", max_budget=4.0, max_trials=5, parallel=1)
    executor = Executor(sweep, nodes=1, loss=loss).run()
    # At budget 1 the averages of 0, 1 and 2 are .9, 1.9 and 2.9, so that 3 with 2.4 stops. The median of what 4 is
    # compared with is 2.15.
    phases = {number: trial.phase for number, trial in executor.state.trials.items()}
    assert phases == {0: "completed", 1: "completed", 2: "completed", 3: "stopped", 4: "completed"}


def test_population_based_training_copies_good_states() -> None:
    sweep = sweep_of("pbt", max_budget=16.0, interval=2.0, population=8, max_trials=8, seed=1, order="logical")
    executor = Executor(sweep, nodes=8, loss=lambda number, path, budget: path_loss(path, budget)).run()
    copied = [trial for trial in executor.state.trials.values() if trial.copies]
    assert copied
    for trial in copied:
        for copy in trial.copies:
            assert copy.budget == copy.source_budget
            assert copy.source != trial.number
    ends = [trial.value for trial in executor.state.trials.values()]
    alone = sweep_of("none", max_budget=16.0, max_trials=8, seed=1)
    alone_ends = [trial.value for trial in Executor(alone, nodes=8).run().state.trials.values()]
    assert sum(ends) < sum(alone_ends)
    assert min(ends) <= min(alone_ends)


def test_regularized_evolution_mutates_one_parameter_of_a_young_trial() -> None:
    sweep = sweep_of("regularized-evolution", max_budget=2.0, population=10, sample_size=4, max_trials=60, parallel=4)
    executor = Executor(sweep, nodes=4).run()
    trials = executor.state.trials
    completed = executor.state.completed
    for number in range(10, 60):
        child, parent = trials[number], trials[trials[number].parent]
        changed = [name for name in child.parameters if child.parameters[name] != parent.parameters[name]]
        assert len(changed) == 1
        assert parent.number in completed
    late = [trials[number].value for number in range(40, 60)]
    early = [trials[number].value for number in range(10)]
    assert sum(late) / 20 < sum(early) / 10
    assert all(trials[number].parent not in range(5) for number in range(40, 60)), "the oldest have left"


def test_better_is_larger_if_the_objective_is_maximized() -> None:
    losses = {0: 0.1, 1: 0.2, 2: 0.9}
    sweep = sweep_of("asha", max_budget=9.0, max_trials=3, parallel=1, direction="maximize")
    executor = Executor(sweep, nodes=1, loss=constant_losses(losses)).run()
    assert [executor.state.trials[n].budget for n in range(3)] == [1, 1, 3]


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("asha", {}, "scheduler asha: its options do not fit: missing 1 required keyword-only argument: 'max_budget'."),
        ("asha", {"max_budget": 9, "eta": 3}, "its options do not fit: got an unexpected keyword argument 'eta'"),
        ("asha", {"max_budget": 9, "min_budget": 10}, "min_budget must be greater than 0 and at most max_budget (9)"),
        ("asha", {"max_budget": 9, "reduction_factor": 1}, "reduction_factor must be at least 2, not 1."),
        ("asha", {"max_budget": "nine"}, "scheduler asha: max_budget must be a number, not 'nine'."),
        ("asha", {"max_budget": 0}, "max_budget must be greater than 0 and finite, not 0."),
        ("pbt", {"max_budget": 9, "population": 1}, "population must be at least 2"),
        ("pbt", {"max_budget": 9, "population": 8.5}, "population must be an integer, not 8.5."),
        ("median-stopping", {"max_budget": 9, "interval": 10}, "interval must be greater than 0 and at most"),
        ("regularized-evolution", {"max_budget": 9, "sample_size": 99}, "sample_size must be from 1 to the population"),
        ("ahsa", {}, "unknown scheduler 'ahsa'."),
        ("missing.py", {}, "scheduler file missing.py: not found."),
    ],
)
def test_wrong_options_are_told_in_one_sentence(name: str, options: dict, told: str) -> None:
    with pytest.raises(InputError) as raised:
        load(SchedulerChoice(name, tuple(options.items())))
    assert told in raised.value.what


def test_a_scheduler_from_a_file_is_used(tmp_path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from offcut.search.schedulers.base import Stop, StartNew\n"
        "class Scheduler:\n"
        "    waits_at_rungs = False\n"
        "    def __init__(self, max_budget): self.max_budget = max_budget\n"
        "    def next_rung(self, trial, budget): return budget + 1\n"
        "    def decide(self, view, trial): return Stop('enough')\n"
        "    def next_trial(self, view): return StartNew()\n"
    )
    executor = Executor(sweep_of(str(path), max_budget=5.0, max_trials=3)).run()
    assert {trial.reason for trial in executor.state.trials.values()} == {"enough"}


@pytest.mark.parametrize("fault", ["next_rung(self, trial, budget): return budget", "decide(self, view, trial): 1 / 0"])
def test_a_scheduler_that_fails_ends_the_sweep_with_its_fault(tmp_path, fault: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(
        "from offcut.search.schedulers.run_all import RunAll\n"
        "class Scheduler(RunAll):\n"
        "    def next_rung(self, trial, budget): return budget + 1\n"
        f"    def {fault}\n"
    )
    executor = Executor(sweep_of(str(path), max_budget=5.0, max_trials=3)).run()
    assert executor.state.phase == "failed"
    assert f"the scheduler {path} failed: " in executor.state.reason
    assert executor.state.active() == []


def test_a_file_without_a_method_is_refused(tmp_path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("class Scheduler: max_budget = 1\n")
    with pytest.raises(InputError, match="it has no waits_at_rungs"):
        load(SchedulerChoice(str(path)))


def test_built_in_schedulers_load_with_their_least_options() -> None:
    for name in BUILT_IN:
        assert load(SchedulerChoice(name, (("max_budget", 81),))).max_budget == 81


def test_a_trial_whose_script_has_ended_is_not_copied() -> None:
    state, _ = begin(sweep_of("pbt", max_budget=9.0, population=4, parallel=4), slots=4)
    for number, value in ((0, 4.0), (1, 3.0), (2, 2.0), (3, 1.0)):
        step(state, ev.TrialReported(number, 1.0, value))
    state.trials[3].end = TrialEnd(failed=False)
    effects = step(state, ev.TrialReported(0, 2.0, 4.0))
    assert not [effect for effect in effects if isinstance(effect, ev.CopyState)]


def test_a_population_larger_than_the_number_of_trials_at_once_takes_turns() -> None:
    sweep = sweep_of("pbt", max_budget=10.0, population=6, parallel=2, max_trials=6)
    executor = Executor(sweep, nodes=2, seed=3)
    spread = 0.0
    while executor.state.phase == "running":
        executor.tick()
        budgets = [trial.budget for trial in executor.state.trials.values()]
        if len(budgets) == 6 and min(budgets) > 0:
            spread = max(spread, max(budgets) - min(budgets))
    assert [trial.phase for trial in executor.state.trials.values()] == ["completed"] * 6
    assert spread <= 3.0, "all are at about the same budget"
    assert any(trial.copies for trial in executor.state.trials.values())
