"""Scripts with a loop of their own under events of the membership: every member ends with the undisturbed run's state."""

from __future__ import annotations

from typing import Any

import elastic_scripts as scripts
import pytest
from real_members import Cluster, alone, same, train, train_with_joiner

#: In one process of xdist, for each of them would start a server of its own.
pytestmark = pytest.mark.xdist_group("members")

#: At step 3 the second member does not see the reduce end; at step 17 the first of those that are left is killed.
FAULTS = (
    {"point": "after-reduce", "how": "break", "rank": 1, "step": 3},
    {"point": "inside-reduce", "how": "kill", "rank": 0, "step": 12},
)


def under_events(**options: Any) -> list[dict[str, Any]]:
    """What is left of two members after the faults, a third's coming at step 6 and the second's leaving at step 9."""
    with Cluster(scripts.trains, faults=FAULTS, **options) as cluster:
        first, second = cluster.start(2)
        cluster.form([first, second])
        with cluster.stopped(first, "step", 6):
            (third,) = cluster.start()
            cluster.form([first, second, third])
        with cluster.stopped(second, "step", 9):
            cluster.leave(second)
        results = cluster.results()
        assert cluster.outcomes()[second].how == "left"
        assert cluster.outcomes()[first].how == "died"
        assert len(list(cluster.directory.glob("fault-*"))) == len(FAULTS)
        return results


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="plain"),
        pytest.param({"accumulate": 2, "epochs": 8, "clipped": True}, id="accumulated-and-clipped"),
        pytest.param({"scaled": True, "clipped": True, "averaged": True}, id="scaled-and-averaged"),
        pytest.param({"scaled": True, "outlier": True}, id="scaler-that-skips"),
        pytest.param({"workers": 2, "sampler": "weighted"}, id="processes-and-weights"),
        pytest.param({"sampler": "walk"}, id="draws-on-the-way"),
    ],
)
def test_the_result_is_the_undisturbed_one(options: dict[str, Any]) -> None:
    results, undisturbed = under_events(**options), alone(scripts.trains, **options)
    assert results
    for result in results:
        for name, value in undisturbed.items():
            assert result[name] == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), name
