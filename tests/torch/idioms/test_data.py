"""Scripts whose data has an order or a state of its own, under events: all end with the undisturbed run's state."""

from __future__ import annotations

import data_scripts as scripts
import pytest
from real_members import Cluster, alone, same, train
from test_elastic import broken, under_events

#: See test_elastic.py.
pytestmark = pytest.mark.xdist_group("members")


@pytest.mark.parametrize("options", [{}, {"accumulate": 2, "epochs": 6}])
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


def test_more_members_than_rows() -> None:
    same(train(scripts.carries_hidden_state, 9), alone(scripts.carries_hidden_state))
