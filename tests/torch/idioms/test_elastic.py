"""Scripts with a loop of their own under events of the membership: all end with the state of the undisturbed run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import elastic_scripts as scripts
import pytest
from real_members import Cluster, alone, same, train, train_with_joiner

#: In one process of xdist, for each of them would start a server of its own.
pytestmark = pytest.mark.xdist_group("members")

#: At step 3 the second member does not see the reduce end; at step 17 the first of those that are left is killed.
FAULTS = (
    {"point": "after-reduce", "how": "break", "rank": 1, "step": 3},
    {"point": "inside-reduce", "how": "kill", "rank": 0, "step": 12},
)


def under_events(script: Callable[..., Any] = scripts.trains, **options: Any) -> list[dict[str, Any]]:
    """What is left of two members after the faults, a third's coming at step 6 and the second's leaving at step 9."""
    with Cluster(script, faults=FAULTS, **options) as cluster:
        first, second = cluster.start(2)
        cluster.form([first, second])
        with cluster.stopped(first, "step", 6):
            (third,) = cluster.start()
            cluster.form([first, second, third])
        with cluster.stopped(second, "step", 9):
            cluster.leave(second)
        results = cluster.results()
        assert cluster.outcomes()[second].how == "left"
        assert cluster.outcomes()[first].how == "died"
        assert len(list(cluster.directory.glob("fault-*"))) == len(FAULTS)
        return results


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"accumulate": 2, "epochs": 8, "clipped": True}, id="accumulated-and-clipped"),
        pytest.param({"scaled": True, "clipped": True, "averaged": True}, id="scaled-and-averaged"),
        pytest.param({"scaled": True, "outlier": True}, id="scaler-that-skips"),
        pytest.param({"workers": 2, "sampler": "weighted"}, id="processes-and-weights"),
        pytest.param({"sampler": "walk", "frozen": True}, id="draws-on-the-way-and-unfreezes"),
    ],
)
def test_the_result_is_the_undisturbed_one(options: dict[str, Any]) -> None:
    results, undisturbed = under_events(**options), alone(scripts.trains, **options)
    assert results
    for result in results:
        for name, value in undisturbed.items():
            assert result[name] == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), name


def test_several_optimizers_are_all_undone_if_the_step_fails_later() -> None:
    results = under_events(scripts.adversarial)
    same(results, alone(scripts.adversarial))
    # The judge's first update in a step is done, and its second is not, on both members or on one of them.
    faults = [{**broken("before-reduce", 0, 3), "pass": 1}, {**broken("after-reduce", 1, 6), "pass": 1}]
    with Cluster(scripts.adversarial, faults=faults) as cluster:
        cluster.form(cluster.start(2))
        same(cluster.results(), alone(scripts.adversarial))
        assert len(list(cluster.directory.glob("fault-*"))) == len(faults)


def broken(point: str, rank: int, step: int) -> dict[str, Any]:
    return {"point": point, "how": "break", "rank": rank, "step": step}


#: Steps in a data epoch of 37 samples.
STEPS = 5


@pytest.mark.parametrize("rank", [0, 1])
def test_code_after_a_data_epoch_runs_once_where_only_one_member_has_its_last_step(rank: int) -> None:
    results = train(scripts.trains, 2, broken("after-reduce", rank, STEPS), epochs=3)
    same(results, alone(scripts.trains, epochs=3))
    assert len(results) == 2


def test_a_member_that_dies_during_an_evaluation_leaves_its_batches_to_the_others() -> None:
    with Cluster(scripts.trains, epochs=3) as cluster:
        names = cluster.start(3)
        cluster.form(names)
        with cluster.stopped(names[0], "epoch end", STEPS):
            cluster.kill(names[0])
        results = cluster.results()
    assert len(results) == 2
    same(results, alone(scripts.trains, epochs=3))


def test_a_joiner_in_the_middle_of_an_epoch_that_did_not_seed_its_random_numbers_has_the_same_order() -> None:
    first, second = train_with_joiner(scripts.trains, "step", STEPS + 2, seeded=False, epochs=3)
    assert first == second


def test_a_joiner_while_the_other_evaluates_runs_what_follows_the_epoch_once() -> None:
    results = train_with_joiner(scripts.trains, "epoch end", STEPS, epochs=3)
    same(results, alone(scripts.trains, epochs=3))


def test_the_last_member_that_must_leave_during_an_evaluation_saves_the_state_before_it() -> None:
    with Cluster(scripts.trains, epochs=3) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], "epoch end", 2 * STEPS):
            cluster.leave(first[0], limit_s=1.0)
            cluster.until(lambda: "left" in cluster.said(first[0]))
        second = cluster.start()
        cluster.form(second)
        same(cluster.results(), alone(scripts.trains, epochs=3))


def test_a_start_from_a_checkpoint_goes_on_in_the_middle_of_the_epoch() -> None:
    with Cluster(scripts.trains, epochs=3) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], "step", STEPS + 2):
            cluster.leave(first[0])
        assert cluster.outcomes()[first[0]].how == "left"
        second = cluster.start()
        cluster.form(second)
        same(cluster.results(), alone(scripts.trains, epochs=3))


def test_all_stop_at_the_same_step_by_a_number_that_they_share() -> None:
    undisturbed = alone(scripts.stops_early)
    assert 5 < undisturbed["steps"] < 200
    same(train(scripts.stops_early, 2, broken("after-reduce", 1, 4)), undisturbed)


def test_sums_means_and_gathered_numbers_are_those_of_the_global_batch() -> None:
    # Batches of 4, 4 and 2 samples: the third member has none of the last one.
    batches = [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0], [8.0, 9.0]]
    told = [(sum(batch), len(batch), sum(batch) / len(batch), batch) for batch in batches]
    assert alone(scripts.shares_numbers) == told
    assert train(scripts.shares_numbers, 3) == [told] * 3
    assert train(scripts.shares_numbers, 2, broken("before-reduce", 1, 2)) == [told] * 2


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_loss_over_tokens_is_that_of_the_global_batch(accumulate: int) -> None:
    undisturbed = alone(scripts.counts_tokens, accumulate=accumulate)
    same(train(scripts.counts_tokens, 3, broken("before-reduce", 1, 4), accumulate=accumulate), undisturbed)


def test_members_that_end_a_step_after_different_batches_end_with_an_error_that_names_it() -> None:
    with Cluster(scripts.counts_turns) as cluster:
        cluster.form(cluster.start(2))
        outcomes = cluster.outcomes().values()
    assert all(
        "the batch after which optimizer.step() is called (rank 0: 2, rank 1: 1)" in each.value for each in outcomes
    )


def test_clipping_before_the_sum_is_an_error_on_all_members() -> None:
    with Cluster(scripts.clips_unreduced) as cluster:
        cluster.form(cluster.start(2))
        outcomes = cluster.outcomes().values()
    assert [outcome.how for outcome in outcomes] == ["raised", "raised"]
    assert all("gradients were changed between backward() and optimizer.step()" in each.value for each in outcomes)


@pytest.mark.ci
@pytest.mark.parametrize("seed", range(3))
def test_members_die_and_are_replaced_over_and_over(seed: int) -> None:
    """Ten die, at points and ranks that a seed chooses, and all of them are replaced."""
    choose = random.Random(seed)
    points = ["before-reduce", "inside-reduce", "after-reduce", "after-update", "boundary"]
    deaths = [
        {"point": choose.choice(points), "how": "kill", "rank": choose.randrange(3), "step": 4 * i + 4}
        for i in range(10)
    ]
    options = {"epochs": 60, "clipped": True, "workers": seed % 2}
    with Cluster(scripts.trains, faults=deaths, **options) as cluster:
        cluster.form(cluster.start(3))
        for _ in deaths:
            cluster.until(lambda: len(cluster.members) < 3)
            with cluster.held():  # the training must not end before all have died
                new = cluster.start(3 - len(cluster.members))
                cluster.form([*cluster.members, *new])
        results = cluster.results()
        assert len(list(cluster.directory.glob("fault-*"))) == len(deaths)
    same(results, alone(scripts.trains, **options))
