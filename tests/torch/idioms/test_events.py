"""What scripts do, under what may happen to them: every member ends with the undisturbed run's parameters."""

from __future__ import annotations

from typing import Any

import idiom_scripts as scripts
import pytest
from real_members import Cluster, alone


def same(results: list[Any], undisturbed: Any) -> None:
    """All members have the same bits, and those of the undisturbed run but for the order of sums."""
    assert results
    assert all(result == results[0] for result in results)
    assert results[0].keys() == undisturbed.keys()
    for name, value in undisturbed.items():
        assert results[0][name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_who_joins_at_the_end_of_a_data_epoch_decides_by_the_same_loss() -> None:
    with Cluster(scripts.plateau) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], "step", 4):
            second = cluster.start()
            cluster.form([*first, *second])
        same(cluster.results(), alone(scripts.plateau))
        assert cluster.notes(second[0]) == cluster.notes(first[0])


def test_a_start_from_the_checkpoint_of_a_data_epochs_end_decides_by_the_same_loss() -> None:
    with Cluster(scripts.plateau) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], "step", 4):
            cluster.leave(first[0])
        assert cluster.outcomes()[first[0]].how == "left"
        second = cluster.start()
        cluster.form(second)
        same(cluster.results(), alone(scripts.plateau))
