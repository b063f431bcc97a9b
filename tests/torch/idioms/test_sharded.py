"""Members that hold shards of the optimizers' state, where members come, go and die."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import idiom_scripts as idioms
import option_scripts as scripts
import pytest
from real_members import Cluster, alone, same, train

from offcut.torch.state import dcp_shards
from offcut.torch.state.checkpoint_layout import ByLayer

#: In one process of xdist, for each of them would start a server of its own. `test_options` has a case in make test.
pytestmark = [pytest.mark.ci, pytest.mark.xdist_group("members")]


#: The scripts' model has as many parameters.
SHARDS = 4


def broken(rank: int, step: int, *, exchanged: bool) -> dict[str, Any]:
    return {"point": "exchange", "how": "break", "rank": rank, "step": step, "pass": int(exchanged)}


def killed(rank: int, step: int, *, exchanged: bool) -> dict[str, Any]:
    return {**broken(rank, step, exchanged=exchanged), "how": "kill"}


def complete(checkpoint: Path) -> bool:
    """Whether a checkpoint is published, or all of it is written."""
    names = ByLayer(SHARDS).names(3)
    return checkpoint.name.startswith("step-") or dcp_shards.complete(checkpoint, names)


@cache
def undisturbed() -> dict[str, Any]:
    result: dict[str, Any] = alone(scripts.trains)
    return result


def check(results: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    assert results
    for result in results:
        assert result["steps"] == expected["steps"]
        assert result["parameters"] == pytest.approx(expected["parameters"], rel=1e-9, abs=1e-12)


def test_two_members_have_the_bits_of_members_without_shards() -> None:
    results = train(scripts.trains, 2, optimizer_copies=1, clip_norm=0.05)
    assert [result["parameters"] for result in results] == [
        result["parameters"] for result in train(scripts.trains, 2, clip_norm=0.05)
    ]


@pytest.mark.parametrize("copies", [1, 2])
def test_members_come_and_leave(copies: int) -> None:
    with Cluster(scripts.trains, optimizer_copies=copies) as cluster:
        first, second = cluster.start(2)
        cluster.form([first, second])
        with cluster.stopped(first, "step", 5):
            third, fourth = cluster.start(2)
            cluster.form([first, second, third, fourth])
        with cluster.stopped(second, "step", 12):
            cluster.leave(second)
            cluster.leave(third)
        check(cluster.results(), undisturbed())
        assert [cluster.outcomes()[name].how for name in (second, third)] == ["left", "left"]


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([broken(1, 4, exchanged=False), broken(2, 9, exchanged=True)], id="it-sees-its-generation-break"),
        pytest.param([killed(1, 4, exchanged=False)], id="it-dies-before-it-sends-its-part"),
        pytest.param([killed(0, 4, exchanged=True)], id="it-dies-when-it-has-all"),
    ],
)
def test_with_two_copies_one_member_may_die_in_the_middle_of_an_update(faults: list[dict[str, Any]]) -> None:
    results = train(scripts.trains, 3, *faults, optimizer_copies=2)
    check(results, undisturbed())


def test_with_one_copy_a_death_takes_all_back_to_a_checkpoint_of_an_earlier_data_epoch() -> None:
    """What follows the data epoch in which they were does not count then: they are in it too early."""
    kill = killed(1, 9, exchanged=False)
    with Cluster(idioms.schedule_per_epoch, faults=[kill], optimizer_copies=1) as cluster:
        names = cluster.start(3)
        cluster.form(names)
        with cluster.stopped(names[0], "step", 4):
            # The first checkpoint is published when the first member goes on.
            cluster.until(lambda: any(complete(path) for path in (cluster.directory / "checkpoints").iterdir()))
        same(cluster.results(), alone(idioms.schedule_per_epoch))
        assert "optimizer state was lost: all members go back to the checkpoint of step 1" in str(cluster.heard)


def test_all_leave_and_others_go_on_from_the_shards_that_they_saved() -> None:
    with Cluster(scripts.trains, optimizer_copies=1) as cluster:
        first = cluster.start(2)
        cluster.form(first)
        with cluster.stopped(first[0], "step", 7):
            for name in first:
                cluster.leave(name)
        assert [cluster.outcomes()[name].how for name in first] == ["left", "left"]
        second = cluster.start(3)
        cluster.form(second)
        check(cluster.results(), undisturbed())
        assert {cluster.notes(name)[0][0] for name in second} == {9}
