"""Who had the nodes over time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from offcut.service.page.node_use import NodeCounts, NodeUse, count_nodes


def node(phase: str = "up", job: str | None = None, worker: str = "none") -> Any:
    return SimpleNamespace(phase=phase, job=job, worker=worker)


def test_nodes_are_counted_by_use() -> None:
    nodes = {
        "a": node("idle"),
        "b": node("up"),
        "c": node("up", "x-1", "starting"),
        "d": node("up", "x-1", "member"),
        "e": node("up", "y-2", "member"),
        "f": node("up", "y-2", "member"),
    }
    counts = count_nodes(5.0, SimpleNamespace(nodes=nodes))  # type: ignore[arg-type]
    assert counts == NodeCounts(5.0, idle=1, held=1, booting=1, jobs={"y-2": 2, "x-1": 1})


def test_a_point_names_the_largest_jobs_and_adds_up_the_others() -> None:
    nodes = {f"n{i}": node("up", f"job-{i // 2 if i < 80 else i}", "member") for i in range(100)}
    counts = count_nodes(0.0, SimpleNamespace(nodes=nodes))  # type: ignore[arg-type]
    assert len(counts.jobs) == 30
    assert set(counts.jobs.values()) == {2}
    assert counts.other_jobs == 40


def test_only_changes_are_noted_and_all_columns_end_now() -> None:
    use = NodeUse()
    assert use.note(NodeCounts(1.0, 3, 0, 0, {}))
    assert not use.note(NodeCounts(2.0, 3, 0, 0, {}))
    assert use.note(NodeCounts(4.0, 1, 0, 0, {"x-1": 2}))
    columns = use.columns(9.0)
    assert columns["time_s"] == [1.0, 4.0, 9.0]
    assert dict(zip(columns["owners"], columns["counts"], strict=True)) == {
        "x-1": [0, 2, 2],
        "other jobs": [0, 0, 0],
        "booting": [0, 0, 0],
        "held": [0, 0, 0],
        "idle": [3, 1, 1],
    }


def test_of_many_jobs_those_with_the_most_node_seconds_are_shown_and_no_node_is_lost() -> None:
    use = NodeUse()
    for i in range(20):
        use.note(NodeCounts(float(i), 0, 0, 0, {f"j-{i}": 1 + i % 7}))
    columns = use.columns(20.0)
    assert len(columns["jobs"]) == 8
    assert columns["jobs"][0] in {"j-6", "j-13"}
    totals = [sum(column) for column in zip(*columns["counts"], strict=True)]
    assert totals == [1 + i % 7 for i in range(20)] + [1 + 19 % 7]


def test_a_long_run_keeps_a_bounded_number_of_points_the_newest_all() -> None:
    use = NodeUse()
    for i in range(50_000):
        use.note(NodeCounts(float(i), i % 5, 0, 0, {}))
    assert 1000 < len(use.points) < 2048
    assert [point.time_s for point in use.points[-500:]] == [float(i) for i in range(49_500, 50_000)]
    assert use.points[0].time_s < 10_000
    assert use.columns(50_000.0)["time_s"] == sorted(use.columns(50_000.0)["time_s"])


def test_an_empty_record_has_empty_columns() -> None:
    assert NodeUse().columns(1.0)["time_s"] == []
