"""Freezing, adapters, recomputation, compiled models and special optimizers under events: all as in plain torch."""

from __future__ import annotations

from typing import Any

import model_scripts as scripts
import pytest
from real_members import Cluster, alone, same, train
from test_elastic import broken, under_events

#: See test_elastic.py.
pytestmark = pytest.mark.xdist_group("members")


def check(**options: Any) -> None:
    plain = alone(scripts.trains, elastic=False, **{k: v for k, v in options.items() if k != "without_frozen"})
    for results in ([alone(scripts.trains, **options)], under_events(scripts.trains, **options)):
        same([{"parameters": result["parameters"]} for result in results], plain)


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["unfreezes", "channels-last", "sharpness", "muon"])
def test_the_result_is_that_of_plain_torch(kind: str) -> None:
    check(kind=kind)


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["unfreezes", "adapted", "hooked", "channels-last", "recomputed"])
def test_the_result_with_several_batches_in_a_step_is_that_of_plain_torch(kind: str) -> None:
    check(kind=kind, accumulate=2, epochs=8)


@pytest.mark.ci
def test_a_compiled_model() -> None:
    check(kind="compiled")


def test_frozen_weights_that_every_member_makes_are_not_sent_and_not_in_checkpoints() -> None:
    plain = alone(scripts.trains, kind="adapted", elastic=False)
    with Cluster(scripts.trains, kind="adapted", without_frozen=True) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], "step", 7):
            second = cluster.start()
            cluster.form([*first, *second])
        with cluster.stopped(first[0], "step", 12):
            for name in (*first, *second):
                cluster.leave(name)
        cluster.form(cluster.start())
        (result,) = cluster.results()
    assert sorted(result["sent"]) == ["0.down.weight", "0.up.weight", "2.bias", "2.weight"]
    same([{"parameters": result["parameters"]}], plain)


def test_members_that_make_other_frozen_weights_end_with_an_error_that_names_them() -> None:
    with Cluster(scripts.makes_other_frozen_weights) as cluster:
        cluster.form(cluster.start(2))
        outcomes = cluster.outcomes().values()
    assert all("the frozen 0.inner.weight (rank 0: " in outcome.value for outcome in outcomes)


def test_a_checkpoint_beside_other_frozen_weights_is_an_error_that_names_them() -> None:
    with Cluster(scripts.makes_other_frozen_weights) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], "step", 3):
            cluster.leave(first[0])
        second = cluster.start()
        cluster.form(second)
        outcomes = cluster.outcomes()
    assert outcomes[first[0]].how == "left"
    assert "beside other frozen weights than this script's: 0.inner.weight" in outcomes[second[0]].value


def test_a_step_of_two_backward_passes_that_fails_leaves_no_trace() -> None:
    faults = [{**broken("after-reduce", 0, 3), "pass": 1}, {**broken("before-reduce", 1, 6), "pass": 2}]
    with Cluster(scripts.trains, faults=faults, kind="sharpness") as cluster:
        cluster.form(cluster.start(2))
        results = cluster.results()
        assert len(list(cluster.directory.glob("fault-*"))) == len(faults)
    plain = alone(scripts.trains, elastic=False, kind="sharpness")
    same([{"parameters": result["parameters"]} for result in results], plain)


def test_sparse_gradients_get_a_sentence() -> None:
    with Cluster(scripts.has_sparse_gradients) as cluster:
        cluster._start("alone", {})
        (outcome,) = cluster.outcomes().values()
    assert "sparse gradients" in outcome.value


def test_hooks_run_on_members_without_a_sample_too() -> None:
    plain = alone(scripts.trains, kind="hooked", elastic=False)
    same([{"parameters": each["parameters"]} for each in train(scripts.trains, 6, kind="hooked")], plain)
