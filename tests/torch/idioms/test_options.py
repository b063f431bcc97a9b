"""Options that change what a step computes, with members that come, go, die and are at different steps."""

from __future__ import annotations

from typing import Any

import option_scripts as scripts
import pytest
from real_members import Cluster, alone

#: At step 3 the second member does not see the reduce end; at step 17 the first of those that are left is killed.
pytestmark = pytest.mark.xdist_group("members")

FAULTS = (
    {"point": "after-reduce", "how": "break", "rank": 1, "step": 3},
    {"point": "inside-reduce", "how": "kill", "rank": 0, "step": 17},
)
#: What every member ends with, whenever it came.
STATE = ("parameters", "steps", "average", "scale")


def under_events(**options: Any) -> list[dict[str, Any]]:
    """What is left of two members after the faults, a third's coming at step 7 and the second's leaving at step 12."""
    with Cluster(scripts.trains, faults=FAULTS, **options) as cluster:
        first, second = cluster.start(2)
        cluster.form([first, second])
        with cluster.stopped(first, "step", 7):
            (third,) = cluster.start()
            cluster.form([first, second, third])
        with cluster.stopped(second, "step", 12):
            cluster.leave(second)
        results = cluster.results()
        assert cluster.outcomes()[second].how == "left"
        assert cluster.outcomes()[first].how == "died"
        assert len(list(cluster.directory.glob("fault-*"))) == len(FAULTS)
        return results


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"clip_norm": 0.05}, id="clipped"),
        pytest.param({"max_local_batch": 3}, id="small-parts"),
        pytest.param({"averaged": True, "max_local_batch": 2}, id="averaged-weights"),
        pytest.param({"scaled": True, "clip_norm": 0.05}, id="scaler"),
        pytest.param({"scaled": True, "outlier": True}, id="scaler-that-skips"),
        pytest.param({"optimizer_copies": 2, "scaled": True, "clip_norm": 0.05}, id="sharded-optimizer"),
        pytest.param({"virtual_shards": 4, "averaged": True}, id="virtual-shards"),
    ],
)
def test_the_result_is_the_undisturbed_one(options: dict[str, Any]) -> None:
    results, undisturbed = under_events(**options), alone(scripts.trains, **options)
    assert results
    for result in results:
        for name in [name for name in STATE if name in undisturbed]:
            assert result[name] == pytest.approx(undisturbed[name], rel=1e-9, abs=1e-12), name
        assert result["largest"] <= options.get("max_local_batch", 8)
        if "clip_norm" in options:
            assert max(result["norms"]) == pytest.approx(options["clip_norm"], rel=1e-4), (
                "gradients are larger than that"
            )


def test_a_fixed_batch_per_rank_is_a_larger_batch_at_a_larger_rate() -> None:
    options = {"batch_per_rank": 4, "lr_rule": "linear"}
    with Cluster(scripts.trains, **options) as cluster:
        cluster.form(cluster.start(2))
        one, other = cluster.results()
    assert one == other
    undisturbed = alone(scripts.trains, global_batch=8, rate=0.1)
    for name in ("parameters", "rates", "steps"):
        assert one[name] == pytest.approx(undisturbed[name], rel=1e-9), name


def test_the_rate_moves_to_the_new_size_s_over_the_warm_up_on_all_members() -> None:
    """One member, from step 3 two: the second starts the warm-up where the first is in it."""
    with Cluster(scripts.trains, batch_per_rank=4, lr_rule="linear", warmup_steps=4) as cluster:
        (first,) = cluster.start()
        cluster.form([first])
        with cluster.stopped(first, "step", 3):
            (second,) = cluster.start()
            cluster.form([first, second])
        old, new = cluster.results()
    joined = len(old["rates"]) - len(new["rates"])
    assert joined in (3, 4), "at the boundary at which it stood, or at the next one"
    assert old["parameters"] == new["parameters"]
    expected = [0.05] * joined + [0.05 * factor for factor in (1.25, 1.5, 1.75)]
    assert old["rates"] == pytest.approx([*expected, *[0.1] * (len(old["rates"]) - len(expected))])
    assert new["rates"] == old["rates"][joined:]


def test_once_is_true_on_exactly_one_member_after_each_step() -> None:
    with Cluster(scripts.trains) as cluster:
        names = cluster.start(3)
        cluster.form(names)
        cluster.results()
        told = [cluster.notes(name) for name in names]
    assert len(told[0]) == 25
    for rows in zip(*told, strict=True):
        assert len({step for step, _ in rows}) == 1
        assert [once for _, once in rows] == [True, False, False]
