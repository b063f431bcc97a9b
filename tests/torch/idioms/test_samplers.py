"""Scripts with samplers of their own, or without a dataset, under events: all end with the undisturbed run's state."""

from __future__ import annotations

import pytest
import sampler_scripts as scripts
from real_members import Cluster, alone, same
from test_elastic import under_events

#: See test_elastic.py.
pytestmark = pytest.mark.xdist_group("members")


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        ("buckets", 0),
        pytest.param("curriculum", 1, marks=pytest.mark.ci),
        pytest.param("in order", 0, marks=pytest.mark.ci),
        pytest.param("in order, whole batches", 0, marks=pytest.mark.ci),
        ("weighted", 2),
    ],
)
def test_a_sampler_of_the_script_s_own(kind: str, workers: int) -> None:
    undisturbed = alone(scripts.samples_by, kind=kind, workers=workers)
    same(under_events(scripts.samples_by, kind=kind, workers=workers), undisturbed)


def test_a_sampler_that_is_changed_inside_the_loop_is_an_error() -> None:
    with Cluster(scripts.changes_the_sampler_inside) as cluster:
        cluster.form(cluster.start(2))
        outcomes = cluster.outcomes().values()
    assert all("changed the sampler's `epoch` inside the loop" in outcome.value for outcome in outcomes)


def test_several_updates_for_a_batch_without_a_dataset() -> None:
    same(under_events(scripts.plays), alone(scripts.plays))


@pytest.mark.ci
def test_learning_rates_are_tried_before_the_training() -> None:
    undisturbed = alone(scripts.finds_its_rate)
    assert undisturbed["rate"] > 0.001
    same(under_events(scripts.finds_its_rate), undisturbed)
