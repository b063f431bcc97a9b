"""Scripts that draw batches, or noise for them, as jobs: all end with the state of the undisturbed run."""

from __future__ import annotations

import drawn_scripts as scripts
import pytest
from real_members import Cluster, alone, same, train, train_with_joiner

#: In one process of xdist, for each of them would start a server of its own.
pytestmark = pytest.mark.xdist_group("members")


def test_batches_that_a_function_draws_are_the_undisturbed_ones() -> None:
    """A step breaks on one member, a worker joins that need not draw all batches again, one dies."""
    faults = (
        {"point": "after-reduce", "how": "break", "rank": 1, "step": 60},
        {"point": "inside-reduce", "how": "kill", "rank": 0, "step": 112},
    )
    with Cluster(scripts.over_steps, faults=faults) as cluster:
        names = cluster.start(2)
        cluster.form(names)
        with cluster.stopped(names[0], "step", 108):
            cluster.form([*names, *cluster.start()])
        results = cluster.results()
        assert len(list(cluster.directory.glob("fault-*"))) == len(faults)
    assert len(results) == 2
    same(results, alone(scripts.over_steps))


def test_a_function_is_called_in_each_of_several_epochs() -> None:
    with Cluster(scripts.over_epochs) as cluster:
        (first,) = cluster.start()
        cluster.form([first])
        with cluster.stopped(first, "step", 6):
            cluster.form([first, *cluster.start()])
        results = cluster.results()
    same(results, alone(scripts.over_epochs))


@pytest.mark.parametrize("where", [("step", 7), ("epoch end", 5)])
def test_noise_for_rows_is_the_undisturbed_one_where_a_worker_joins(where: tuple[str, int]) -> None:
    same(train_with_joiner(scripts.with_noise, *where), alone(scripts.with_noise))


def test_noise_for_rows_is_the_same_again_after_a_step_that_failed() -> None:
    faults = [
        {"point": "before-reduce", "how": "break", "rank": 1, "step": 3},
        {"point": "after-reduce", "how": "break", "rank": 0, "step": 5},
        {"point": "inside-reduce", "how": "kill", "rank": 2, "step": 8},
    ]
    same(train(scripts.with_noise, 3, *faults), alone(scripts.with_noise))
