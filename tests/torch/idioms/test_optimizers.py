"""What optimizers get and keep is as in plain torch: gradients that are missing, types of their own, frozen groups."""

from __future__ import annotations

import optimizer_scripts as scripts
import pytest
from real_members import Cluster, alone, same, train, train_with_joiner

#: See test_events.py.
pytestmark = pytest.mark.xdist_group("members")


def test_parameters_without_a_gradient_anywhere_are_left_alone() -> None:
    plain = alone(scripts.uses_branches_in_plain_torch)
    assert plain["kept"] == 4, "the layer that is never used has no state"
    same([alone(scripts.uses_branches)], plain)
    same(train(scripts.uses_branches, 2), plain)


def test_joiners_and_broken_steps_do_not_change_parameters_without_a_gradient() -> None:
    plain = alone(scripts.uses_branches_in_plain_torch)
    same(train_with_joiner(scripts.uses_branches, "step", 3), plain)
    fault = {"point": "after-reduce", "how": "break", "rank": 1, "step": 4}
    same(train(scripts.uses_branches, 2, fault), plain)


def test_optimizer_state_of_another_type_arrives_in_its_type() -> None:
    results = train_with_joiner(scripts.keeps_more_precise_numbers, "step", 7)
    assert results[0] == results[1]
    assert set(results[0]["types"]) == {"torch.float32"}


def test_optimizer_state_of_another_type_is_read_from_a_checkpoint_to_the_bit() -> None:
    with Cluster(scripts.keeps_more_precise_numbers) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], "step", 8):
            cluster.leave(first[0])
        assert cluster.outcomes()[first[0]].how == "left"
        cluster.form(cluster.start())
        assert cluster.results() == [alone(scripts.keeps_more_precise_numbers)]


def test_an_update_of_a_group_with_frozen_parameters() -> None:
    plain = alone(scripts.updates_a_group_with_frozen_parameters_in_plain_torch)
    same([alone(scripts.updates_a_group_with_frozen_parameters)], plain)
    same(train(scripts.updates_a_group_with_frozen_parameters, 2), plain)
