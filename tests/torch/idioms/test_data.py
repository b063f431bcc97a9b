"""Scripts whose data has an order or a state of its own, under events: all end with the undisturbed run's state."""

from __future__ import annotations

from typing import Any

import data_scripts as scripts
import pytest
from real_members import Cluster, alone, same, train, train_with_joiner
from test_elastic import broken, under_events

#: See test_elastic.py.
pytestmark = pytest.mark.xdist_group("members")


@pytest.mark.parametrize("options", [{}, pytest.param({"accumulate": 2, "epochs": 6}, marks=pytest.mark.ci)])
def test_hidden_state_follows_its_rows(options: dict[str, int]) -> None:
    undisturbed = alone(scripts.carries_hidden_state, **options)
    assert alone(scripts.carries_hidden_state, elastic=False, **options) == undisturbed
    same(under_events(scripts.carries_hidden_state, **options), undisturbed)


def test_hidden_state_is_undone_with_its_step_and_is_in_checkpoints() -> None:
    faults = [broken("before-reduce", 1, 2), broken("after-reduce", 0, 4), broken("after-update", 1, 8)]
    with Cluster(scripts.carries_hidden_state, faults=faults) as cluster:
        names = cluster.start(2)
        cluster.form(names)
        with cluster.stopped(names[0], "step", 12):
            for name in names:
                cluster.leave(name)
        last = cluster.start()
        cluster.form(last)
        same(cluster.results(), alone(scripts.carries_hidden_state))


@pytest.mark.ci
def test_hidden_state_of_virtual_shards() -> None:
    same(under_events(scripts.carries_hidden_state, shards=3), alone(scripts.carries_hidden_state, shards=3))


@pytest.mark.ci
def test_more_members_than_rows() -> None:
    same(train(scripts.carries_hidden_state, 9), alone(scripts.carries_hidden_state))


@pytest.mark.ci
def test_a_second_loop_over_the_epochs() -> None:
    # The faults strike in the first loop and in the second.
    same(under_events(scripts.in_phases), alone(scripts.in_phases))


def test_a_second_loop_with_another_loader() -> None:
    undisturbed = alone(scripts.in_phases, loaders=True)
    assert undisturbed["steps"] == 3 * 5 + 4 * 5
    same(under_events(scripts.in_phases, loaders=True, workers=1), undisturbed)


@pytest.mark.parametrize(("point", "step"), [pytest.param("between", 15, marks=pytest.mark.ci), ("second", 18)])
def test_a_worker_that_joins_goes_to_the_second_loop_at_once(point: str, step: int) -> None:
    options = {"evaluates": True, "loaders": True}
    undisturbed = alone(scripts.in_phases, **options)
    with Cluster(scripts.in_phases, **options) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], point, step):
            second = cluster.start()
            cluster.form([*first, *second])
        results = cluster.results()
        assert all(not more for more, _, _ in cluster.notes(second[0]))
    assert len(results) == 2
    for result in results:
        # The joiner does not evaluate what the others have evaluated before.
        result["evaluated"] = undisturbed["evaluated"]
    same(results, undisturbed)


@pytest.mark.ci
@pytest.mark.parametrize("rank", [0, 1])
def test_the_first_loop_ends_once_where_only_one_member_has_its_last_step(rank: int) -> None:
    undisturbed = alone(scripts.in_phases, stop_at=8)
    assert undisturbed["steps"] == 8 + 4 * 5
    same(train(scripts.in_phases, 2, broken("after-reduce", rank, 8), stop_at=8), undisturbed)
    same(train(scripts.in_phases, 2, broken("after-reduce", rank, 15)), alone(scripts.in_phases))


@pytest.mark.ci
def test_a_start_from_a_checkpoint_goes_on_in_the_second_loop() -> None:
    with Cluster(scripts.in_phases) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], "second", 23):
            cluster.leave(first[0])
        second = cluster.start()
        cluster.form(second)
        same(cluster.results(), alone(scripts.in_phases))


@pytest.mark.parametrize(
    "options",
    [
        {"form": "for", "accumulate": 2},
        pytest.param({"form": "while"}, marks=pytest.mark.ci),
        pytest.param({"form": "break"}, marks=pytest.mark.ci),
    ],
)
def test_a_loop_over_steps(options: dict[str, Any]) -> None:
    undisturbed = alone(scripts.by_steps, **options)
    assert undisturbed["steps"] == 24
    same(under_events(scripts.by_steps, **options), undisturbed)
    for rank in (0, 1):
        # Only one of them has the last step at first.
        same(train(scripts.by_steps, 2, broken("after-reduce", rank, 24), **options), undisturbed)


def test_a_step_that_fails_between_its_batches_comes_again_whole() -> None:
    options = {"accumulate": 4, "means": True}
    with Cluster(scripts.by_steps, **options) as cluster:
        names = cluster.start(3)
        cluster.form(names)
        with cluster.stopped(names[0], "between", 5):
            cluster.kill(names[2])
        results = cluster.results()
    assert len(results) == 2
    same(results, alone(scripts.by_steps, **options))


@pytest.mark.ci
def test_a_worker_that_joins_at_the_last_step() -> None:
    same(train_with_joiner(scripts.by_steps, "step", 23), alone(scripts.by_steps))


@pytest.mark.ci
def test_several_optimizers_in_a_loop_over_steps() -> None:
    undisturbed = alone(scripts.two_judges_by_steps)
    assert undisturbed["steps"] == 14
    same(under_events(scripts.two_judges_by_steps), undisturbed)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="unequal-shards"),
        pytest.param({"workers": 2, "batch": 12, "epochs": 5}, id="processes"),
        pytest.param({"accumulate": 2, "epochs": 6}, id="accumulated", marks=pytest.mark.ci),
        pytest.param({"virtual_shards": 4}, id="virtual-shards", marks=pytest.mark.ci),
        pytest.param(
            {"noise": True, "virtual_shards": 3, "drop_last": True, "epochs": 6}, id="noise", marks=pytest.mark.ci
        ),
    ],
)
def test_a_stream_loses_and_doubles_no_sample(options: dict[str, Any]) -> None:
    undisturbed = alone(scripts.streams, **options)
    if not options.get("drop_last"):
        assert set(undisturbed["seen"]) == {options.get("epochs", 4)}
        assert undisturbed["samples"] == sum(undisturbed["seen"])
    same(under_events(scripts.streams, **options), undisturbed)


@pytest.mark.ci
def test_more_members_than_shards_of_a_stream() -> None:
    options = {"shards": 2, "batch": 5, "epochs": 2}
    same(train(scripts.streams, 3, broken("after-reduce", 2, 2), **options), alone(scripts.streams, **options))


@pytest.mark.ci
@pytest.mark.parametrize("rank", [0, 1])
def test_the_data_epoch_of_a_stream_ends_once_where_only_one_member_has_its_last_step(rank: int) -> None:
    undisturbed = alone(scripts.streams)
    for step in (undisturbed["steps"] // 4, undisturbed["steps"]):
        same(train(scripts.streams, 2, broken("after-reduce", rank, step)), undisturbed)


def test_a_start_from_a_checkpoint_goes_on_in_the_middle_of_a_stream() -> None:
    with Cluster(scripts.streams) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], "step", 8):
            cluster.leave(first[0])
        second = cluster.start(2)
        cluster.form(second)
        same(cluster.results(), alone(scripts.streams))
