"""Loops over virtual shards under events: all end with the undisturbed run's state, whatever is random in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import shard_scripts as scripts
from real_members import Cluster, alone, same, train
from test_elastic import broken, under_events

#: See test_elastic.py.
pytestmark = pytest.mark.xdist_group("members")
CI = pytest.mark.ci


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param(
            {"accumulate": 2, "epochs": 8, "clipped": True, "scaled": True}, id="accumulated-and-scaled", marks=CI
        ),
        pytest.param({"frozen": True}, id="unfreezes", marks=CI),
        pytest.param({"workers": 1, "epochs": 4}, id="loaded-by-a-process", marks=CI),
    ],
)
def test_batch_norm_dropout_and_augmentation_are_those_of_the_undisturbed_run(options: dict[str, Any]) -> None:
    same(under_events(scripts.trains, **options), alone(scripts.trains, **options))


def test_a_gan_with_batch_norm_and_five_updates_of_its_judge_is_the_undisturbed_one() -> None:
    undisturbed = alone(scripts.adversarial)
    same(under_events(scripts.adversarial), undisturbed)
    # The judge has had three updates of a step that fails then, on both members or on one of them.
    faults = [{**broken("before-reduce", 0, 3), "pass": 3}, {**broken("after-reduce", 1, 6), "pass": 3}]
    with Cluster(scripts.adversarial, faults=faults) as cluster:
        cluster.form(cluster.start(2))
        same(cluster.results(), undisturbed)
        assert len(list(cluster.directory.glob("fault-*"))) == len(faults)


@pytest.mark.ci
@pytest.mark.parametrize("accumulate", [1, 2])
def test_hidden_state_of_rows_in_shards_with_dropout(accumulate: int) -> None:
    options = {"accumulate": accumulate}
    same(under_events(scripts.carries_hidden_state, **options), alone(scripts.carries_hidden_state, **options))


def test_more_members_than_shards() -> None:
    same(train(scripts.trains, scripts.SHARDS + 1, epochs=2), alone(scripts.trains, epochs=2))


def test_shards_of_a_model_that_works_on_each_sample_are_plain_torch() -> None:
    plain = alone(scripts.is_plain, elastic=False)
    same([alone(scripts.is_plain, elastic=True)], plain)
    same(train(scripts.is_plain, 2, elastic=True), plain)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (scripts.loses_gradients, "Call zero_grad() before the loop over the shards"),
        (scripts.steps_inside, "optimizer.step() inside the loop over the shards"),
        (scripts.shares_inside, "offcut.torch.mean() inside the loop over the shards"),
        (scripts.leaves_early, "the loop over the shards was left early"),
        (scripts.keeps_an_old_batch, "a loop over shards of an earlier batch"),
    ],
)
def test_misuse_of_shards_gets_a_sentence(script: Callable[..., None], sentence: str) -> None:
    with Cluster(script) as cluster:
        cluster._start("alone", {})
        (outcome,) = cluster.outcomes().values()
    assert sentence in str(outcome.value)
