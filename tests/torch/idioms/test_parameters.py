"""Parameters that are frozen, unfrozen, added, or laid out in another order, under what may happen to members."""

from __future__ import annotations

import idiom_scripts as scripts
import pytest
from real_members import Cluster, alone, same, train, train_with_joiner

#: See test_events.py.
pytestmark = pytest.mark.xdist_group("members")

HOWS = ["requires_grad", "add_param_group"]


@pytest.mark.parametrize("how", HOWS)
def test_a_parameter_that_is_unfrozen_later_trains_as_in_plain_torch(how: str) -> None:
    plain = alone(scripts.unfreezes_in_plain_torch, how=how)
    same([alone(scripts.unfreezes, how=how)], plain)
    same(train(scripts.unfreezes, 2, how=how), plain)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("step", [3, 7, 17])
def test_joiners_train_what_the_others_do(how: str, step: int) -> None:
    results = train_with_joiner(scripts.unfreezes, "step", step, how=how)
    same(results, alone(scripts.unfreezes, how=how))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("point", ["before-reduce", "after-reduce"])
def test_the_first_step_with_other_parameters_breaks(how: str, point: str) -> None:
    results = train(
        scripts.unfreezes, 2, {"point": point, "how": "break", "rank": 1, "step": scripts.STEPS + 1}, how=how
    )
    assert len(results) == 2
    same(results, alone(scripts.unfreezes, how=how))


@pytest.mark.parametrize("how", HOWS)
def test_a_start_from_a_checkpoint_trains_what_was_trained(how: str) -> None:
    with Cluster(scripts.unfreezes, how=how) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], "step", 8):
            cluster.leave(first[0])
        assert cluster.outcomes()[first[0]].how == "left"
        cluster.form(cluster.start())
        same(cluster.results(), alone(scripts.unfreezes, how=how))


@pytest.mark.parametrize("how", HOWS)
def test_members_that_train_different_parameters_are_told(how: str) -> None:
    with Cluster(scripts.unfreezes, how=how, unsure=True) as cluster:
        cluster.form(cluster.start(2))
        outcomes = cluster.outcomes().values()
    for outcome in outcomes:
        assert outcome.how == "raised"
        assert "do not train the same parameters: 0.weight (rank 0: trained, rank 1: not there)" in outcome.value


def test_a_fused_optimizer_of_channels_last_parameters_trains_as_in_plain_torch() -> None:
    plain = alone(scripts.channels_last_in_plain_torch)
    same([alone(scripts.channels_last)], plain)
    results = train_with_joiner(scripts.channels_last, "step", 7)
    same(results, plain)


def test_buffers_that_a_forward_assigns_again_are_the_same_on_all_members() -> None:
    fault = {"point": "before-reduce", "how": "break", "rank": 1, "step": 4}
    with Cluster(scripts.new_buffers, faults=[fault]) as cluster:
        first = cluster.start(2)
        cluster.form(first)
        with cluster.stopped(first[0], "step", 7):
            third = cluster.start()
            cluster.form([*first, *third])
        results = cluster.results()
    assert len(results) == 3
    same(results, alone(scripts.new_buffers))


def test_a_scaler_on_a_member_that_has_no_samples() -> None:
    results = train(scripts.scales, 3)
    assert len(results) == 3
    same(results, alone(scripts.scales))


def test_a_scaler_where_a_step_fails_after_its_first_update() -> None:
    results = train(scripts.scales_two, 2, {"point": "before-reduce", "how": "break", "rank": 1, "step": 4, "pass": 1})
    assert len(results) == 2
    same(results, alone(scripts.scales_two))
