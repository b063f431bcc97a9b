"""Gradients that are summed during the backward pass, in buckets: the results are as in one piece."""

from __future__ import annotations

from typing import Any

import overlap_scripts as scripts
import pytest
from real_members import Cluster, alone, same, train, train_with_joiner

#: See test_events.py.
pytestmark = pytest.mark.xdist_group("members")

PLAIN = "elastic_scripts.trains"


def undisturbed(script: str, **options: Any) -> Any:
    return alone(scripts.in_buckets, inner=script, **options)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("script", "options"),
    [
        pytest.param(PLAIN, {"accumulate": 2, "scaled": True, "clipped": True}, id="accumulated-scaled-clipped"),
        pytest.param("elastic_scripts.adversarial", {}, id="several-optimizers"),
        pytest.param("model_scripts.trains", {"kind": "channels-last"}, id="channels-last"),
        pytest.param("model_scripts.trains", {"kind": "unfreezes"}, id="thawed"),
        pytest.param("optimizer_scripts.uses_branches", {}, id="unused-parameters"),
        pytest.param("shard_scripts.trains", {}, id="virtual-shards"),
        pytest.param("overlap_scripts.leaves_a_batch", {}, id="dropped-step"),
    ],
)
def test_two_members_get_the_same_bits_as_without_buckets(script: str, options: dict[str, Any]) -> None:
    results = train(scripts.in_buckets, 2, inner=script, **options)
    assert len(results) == 2
    assert results == train(scripts.in_buckets, 2, inner=script, whole=True, **options)


def test_a_step_of_which_one_bucket_is_summed_is_undone_whole() -> None:
    kill = {"point": "bucket", "how": "kill", "rank": 1, "step": 5, "pass": 2}
    broken = {"point": "bucket", "how": "break", "rank": 0, "step": 9, "pass": 1}
    results = train(scripts.in_buckets, 3, kill, broken, inner=PLAIN)
    assert len(results) == 2
    same(results, undisturbed(PLAIN))


@pytest.mark.ci
def test_members_without_samples_and_a_joiner() -> None:
    results = train_with_joiner(scripts.in_buckets, "step", 7, inner=PLAIN, samples=33)
    same(results, undisturbed(PLAIN, samples=33))
    same(train(scripts.in_buckets, 3, inner=PLAIN, samples=33), undisturbed(PLAIN, samples=33))


# -- over a transport that behaves as one between accelerators


@pytest.mark.parametrize("point", ["bucket", "inside-reduce"])
def test_a_member_dies_while_sums_are_enqueued(point: str) -> None:
    kill = {"point": point, "how": "kill", "rank": 0, "step": 6, "pass": int(point == "bucket")}
    results = train(scripts.in_buckets, 3, kill, inner=PLAIN, fake={"late_s": 0.01})
    assert len(results) == 2
    same(results, undisturbed(PLAIN))


@pytest.mark.ci
@pytest.mark.parametrize("hangs", [False, True])
def test_a_sum_ends_on_some_members_only(hangs: bool) -> None:
    """It is the last one of the third step. The member that has it goes on; the other one waits until it is told."""
    fake = {"who": "n1", "lost": frozenset({4 * 3 - 1}), "abort_hangs": hangs}
    with Cluster(scripts.in_buckets, inner=PLAIN, fake=fake) as cluster:
        names = cluster.start(2)
        cluster.form(names)
        with cluster.stopped(names[0], "step", 3):
            cluster.form(names, abort=True)
        results = cluster.results()
        assert cluster.outcomes()[names[1]].how == ("died" if hangs else "returned")
    assert len(results) == 2 - hangs
    same(results, undisturbed(PLAIN))
