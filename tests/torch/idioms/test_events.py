"""Idioms of scripts under events of the membership: every member ends with the undisturbed run's parameters."""

from __future__ import annotations

from typing import Any

import idiom_scripts as scripts
import pytest
from real_members import Cluster, alone, same, train, train_with_joiner

#: In one process of xdist, for each of them would start a server of its own.
pytestmark = pytest.mark.xdist_group("members")


def test_a_joiner_at_the_end_of_a_data_epoch_decides_by_the_same_loss() -> None:
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


def broken(point: str, rank: int, step: int) -> dict[str, Any]:
    return {"point": point, "how": "break", "rank": rank, "step": step}


@pytest.mark.parametrize("stop_at", [None, 3])
@pytest.mark.parametrize("rank", [0, 1])
def test_code_after_a_data_epoch_runs_once_where_only_one_member_has_its_last_step(
    rank: int, stop_at: int | None
) -> None:
    last = stop_at or scripts.STEPS
    results = train(scripts.schedule_per_epoch, 2, broken("after-reduce", rank, last), stop_at=stop_at)
    same(results, alone(scripts.schedule_per_epoch, stop_at=stop_at))
    assert len(results) == 2


def test_code_after_a_data_epoch_runs_once_where_only_one_member_knows_that_all_have_its_last_step() -> None:
    results = train(scripts.schedule_per_epoch, 3, broken("epoch-end", 1, scripts.STEPS + 1))
    same(results, alone(scripts.schedule_per_epoch))


def test_all_stop_where_only_one_member_has_the_step_that_decides() -> None:
    undisturbed = alone(scripts.stops_by_loss, below=1.75)
    assert 1 < undisturbed["steps"] < 90
    results = train(scripts.stops_by_loss, 2, broken("after-reduce", 1, undisturbed["steps"]), below=1.75)
    same(results, undisturbed)
    assert len(results) == 2


def test_a_joiner_after_the_others_have_left_both_loops_stops_too() -> None:
    undisturbed = alone(scripts.stops_by_loss, below=1.75)
    results = train_with_joiner(scripts.stops_by_loss, "end", below=1.75)
    same(results, undisturbed)


def test_code_before_a_joiner_s_first_batch_takes_effect_once() -> None:
    results = train_with_joiner(scripts.schedule_per_epoch, "step", 7)
    same(results, alone(scripts.schedule_per_epoch))


@pytest.mark.parametrize("stop_at", [None, 3])
def test_the_last_member_that_must_leave_during_an_evaluation_saves_the_state_before_it(stop_at: int | None) -> None:
    with Cluster(scripts.schedule_per_epoch, stop_at=stop_at) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], "epoch end", 2 * (stop_at or scripts.STEPS)):
            cluster.leave(first[0], limit_s=1.0)
            cluster.until(lambda: "left" in cluster.said(first[0]))
        second = cluster.start()
        cluster.form(second)
        same(cluster.results(), alone(scripts.schedule_per_epoch, stop_at=stop_at))
        # What follows the second data epoch ran again, on the state before it.
        assert cluster.notes(second[0])[0] == cluster.notes(first[0])[1]


def test_once_is_true_on_one_member_before_the_first_batch_and_on_none_after_a_step_that_failed() -> None:
    kill = {"point": "before-reduce", "how": "kill", "rank": 2, "step": 4}
    with Cluster(scripts.asks_once, faults=[kill]) as cluster:
        names = cluster.start(3)
        cluster.form(names)
        results = cluster.results()
        notes = [cluster.notes(name) for name in names]
    assert len(results) == 2
    assert [note[0] for note in notes] == [("first", rank == 0, rank, 3) for rank in range(3)]
    for rank in range(2):
        failed = [note for note in notes[rank][1:] if not note[0]]
        assert failed == [(False, False, rank, 3)]
        assert notes[rank][-1] == (True, rank == 0, rank, 2)


def test_members_that_are_cut_off_end_once_the_job_has_gone_on_elsewhere() -> None:
    """They hear nothing of the newer generation: its members have left a mark beside the checkpoints."""
    with Cluster(scripts.schedule_per_epoch, checkpoint_age_s=0.02, epochs=200) as cluster:
        first = cluster.start(2)
        cluster.form(first)
        with cluster.stopped(first[0], "step", 3):
            cluster.members = ()  # the controller has given them up
            other = cluster.start()
            cluster.form(other)
            cluster.until(lambda: cluster.notes(other[0]))
        cluster.until(lambda: cluster.outcome(first[0]) is not None)
        ended = cluster.outcome(first[0])
        assert ended.how == "raised"
        assert "Generation 2 of the job has formed while this member of generation 1 was cut off" in ended.value
        cluster.until(lambda: cluster.outcome(other[0]) is not None)
        assert cluster.outcome(other[0]).how == "returned"
