"""Losses and layers over the global batch under events: all end with the state of one process that has it all."""

from __future__ import annotations

from typing import Any

import global_batch_scripts as scripts
import pytest
from real_members import Cluster, alone, same, train
from test_elastic import broken, under_events

#: See test_elastic.py.
pytestmark = pytest.mark.xdist_group("members")


@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"own": True}, marks=pytest.mark.ci), pytest.param({"shards": 3}, marks=pytest.mark.ci)],
)
def test_a_loss_that_compares_samples_is_that_of_the_global_batch(options: dict[str, Any]) -> None:
    plain = alone(scripts.compares_samples, elastic=False, own=options.get("own", False))
    same(under_events(scripts.compares_samples, **options), plain)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"accumulate": 2}, marks=pytest.mark.ci),
        pytest.param({"recomputed": True}, marks=pytest.mark.ci),
        pytest.param({"compiled": True}, marks=pytest.mark.ci),
    ],
)
def test_synchronised_batch_norm_is_that_of_the_global_batch(options: dict[str, Any]) -> None:
    plain = alone(scripts.synchronised, elastic=False, **options)
    assert alone(scripts.synchronised, **options) == plain
    same(under_events(scripts.synchronised, **options), plain)


@pytest.mark.parametrize("script", [pytest.param(scripts.compares_samples, marks=pytest.mark.ci), scripts.synchronised])
def test_members_that_die_in_the_forward_or_backward_pass_cost_a_step_that_comes_again(script: Any) -> None:
    faults = [
        {"point": "exchange", "how": "kill", "rank": 0, "step": 3},
        {"point": "exchange", "how": "kill", "rank": 2, "step": 6, "pass": 2},
        {**broken("exchange", 0, 9), "pass": 1},
    ]
    plain = alone(script, elastic=False)
    with Cluster(script, faults=faults) as cluster:
        cluster.form(cluster.start(4))
        results = cluster.results()
        assert len(list(cluster.directory.glob("fault-*"))) == len(faults)
    assert len(results) == 2
    same(results, plain)


@pytest.mark.ci
def test_members_without_samples_have_the_statistics_too() -> None:
    same(train(scripts.synchronised, 5), alone(scripts.synchronised, elastic=False))


def test_statistics_over_all_shards_of_a_member_that_has_several_get_a_sentence() -> None:
    with Cluster(scripts.synchronises_shards) as cluster:
        cluster._start("alone", {})
        (outcome,) = cluster.outcomes().values()
    assert "offcut.torch.SyncBatchNorm() inside the loop over the shards" in outcome.value
