"""Scripts whose batches a function draws, as jobs: all end with the state of the undisturbed run."""

from __future__ import annotations

import drawn_scripts as scripts
import pytest
from real_members import Cluster, alone, same

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
