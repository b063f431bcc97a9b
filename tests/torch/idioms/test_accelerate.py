"""A script with accelerate under events of the membership: all members end as the undisturbed run does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from real_members import Cluster, alone, same, train
from replacements import train_with_replacements

import rendezvous

pytestmark = [pytest.mark.xdist_group("members"), pytest.mark.frameworks]


@pytest.fixture(scope="module")
def trains() -> Callable[..., Any]:
    """The script; importing it imports accelerate."""
    rendezvous.preload("accelerate_scripts")
    import accelerate_scripts

    return accelerate_scripts.trains


def broken(point: str, rank: int, step: int) -> dict[str, Any]:
    return {"point": point, "how": "break", "rank": rank, "step": step}


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"seedable": True}])
def test_the_result_is_the_undisturbed_one(trains: Callable[..., Any], options: dict[str, Any]) -> None:
    faults = (broken("after-reduce", 1, 3), {"point": "inside-reduce", "how": "kill", "rank": 0, "step": 12})
    options = {"epochs": 8, **options}
    with Cluster(trains, faults=faults, **options) as cluster:
        first, second = cluster.start(2)
        cluster.form([first, second])
        with cluster.stopped(first, "step", 6):
            (third,) = cluster.start()
            cluster.form([first, second, third])
        with cluster.stopped(second, "step", 9):
            cluster.leave(second)
        results = cluster.results()
        assert len(list(cluster.directory.glob("fault-*"))) == len(faults)
    same(results, alone(trains, **options))


def test_one_member_is_the_main_process(trains: Callable[..., Any]) -> None:
    with Cluster(trains) as cluster:
        names = cluster.start(3)
        cluster.form(names)
        cluster.results()
        mains = [[note[2] for note in cluster.notes(name)] for name in names]
    assert [sum(each) for each in zip(*mains, strict=True)] == [1] * 5


def test_members_die_and_are_replaced_over_and_over(trains: Callable[..., Any]) -> None:
    """Ten are killed and ten join, five generations break besides, and one member leaves."""
    options = {"epochs": 18, "accumulate": 2}
    same(train_with_replacements(trains, 10, 0, **options), alone(trains, **options))


def test_a_loop_outside_of_epochs_is_an_error(trains: Callable[..., Any]) -> None:
    import accelerate_scripts

    with Cluster(accelerate_scripts.keeps_range) as cluster:
        cluster.form(cluster.start(1))
        (outcome,) = cluster.outcomes().values()
    assert "Write `for epoch in accelerator.epochs(count):`" in outcome.value


def test_sums_and_gathered_numbers_are_those_of_the_global_batch(trains: Callable[..., Any]) -> None:
    import accelerate_scripts

    def flat(found: list[Any]) -> list[float]:
        return [number for item in found for number in (item if isinstance(item, list) else [item])]

    undisturbed = flat(alone(accelerate_scripts.reduces))
    for result in train(accelerate_scripts.reduces, 2):
        assert flat(result) == pytest.approx(undisturbed, rel=1e-12)
