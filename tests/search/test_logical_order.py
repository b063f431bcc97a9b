"""With `order = "logical"` decisions do not depend on when nodes come and go."""

from __future__ import annotations

import pytest
from executor import SCHEDULERS, Executor, suggested_by_results, sweep_of


@pytest.mark.parametrize("suggester", ["random", "optuna"])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_decisions_are_equal_with_and_without_reclaims(scheduler: str, suggester: str) -> None:
    sweep = sweep_of(
        scheduler, **SCHEDULERS[scheduler], max_trials=40, order="logical", parallel=8, suggester=suggester, seed=3
    )
    quiet = Executor(sweep, nodes=8, seed=1, answer=suggested_by_results).run()
    for seed, nodes, reclaim in ((2, 8, 0.25), (5, 10, 0.4), (7, 3, 0.3)):
        disturbed = Executor(sweep, nodes=nodes, seed=seed, reclaim=reclaim, answer=suggested_by_results).run()
        assert disturbed.reclaims >= 30
        assert disturbed.most_running >= (min(nodes, 8) if suggester == "random" else 3)
        assert disturbed.decisions() == quiet.decisions()
        assert {n: t.results for n, t in disturbed.state.trials.items()} == {
            n: t.results for n, t in quiet.state.trials.items()
        }
        assert disturbed.state.phase == "finished"


def test_failed_trials_leave_the_decisions_equal_too() -> None:
    def fails(number: int) -> float | None:
        return 1.0 if number % 5 == 4 else None

    sweep = sweep_of("asha", max_budget=9.0, max_trials=30, order="logical", seed=1)
    quiet = Executor(sweep, seed=1, fails=fails).run()
    disturbed = Executor(sweep, seed=2, reclaim=0.3, fails=fails).run()
    assert disturbed.decisions() == quiet.decisions()
    assert sum(trial.phase == "failed" for trial in quiet.state.trials.values()) >= 1


def test_order_of_arrival_is_not_logical() -> None:
    """Without the order the decisions of this very sweep differ, so that the test above tests something."""
    sweep = sweep_of("asha", max_budget=27.0, max_trials=40, parallel=8, seed=3)
    logs = [Executor(sweep, seed=seed, reclaim=reclaim).run().decisions() for seed, reclaim in ((1, 0.0), (2, 0.3))]
    assert logs[0] != logs[1]
