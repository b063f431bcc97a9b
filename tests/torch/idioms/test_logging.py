"""What scripts log under events: one record for each step, with the means of the undisturbed run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import logging_scripts as scripts
import pytest
from real_members import Cluster, alone
from test_elastic import FAULTS, broken

from offcut.wire.metric_records import METRICS_FILE, MetricRecord, read_metrics

#: See test_elastic.py.
pytestmark = pytest.mark.xdist_group("members")


def logged(cluster: Cluster) -> list[MetricRecord]:
    return read_metrics(cluster.directory / METRICS_FILE)


def check(records: list[MetricRecord], undisturbed: list[float], every: int = 1) -> None:
    assert [record.step for record in records] == list(range(1, len(undisturbed) + 1, every))
    assert [record.values["loss"] for record in records] == pytest.approx(undisturbed[::every], rel=1e-9)
    assert all(0.0 < record.values["size"] < 2.0 for record in records)
    assert [record.samples for record in records] == sorted(record.samples for record in records)


@pytest.mark.parametrize(
    "options",
    [
        {},
        *(pytest.param(options, marks=pytest.mark.ci) for options in ({"accumulate": 2}, {"shards": 3}, {"every": 3})),
    ],
)
def test_each_step_has_one_record_whichever_members_come_and_go(options: dict[str, Any]) -> None:
    undisturbed = alone(scripts.logs, **options)
    faults = [FAULTS[0], {**FAULTS[1], "step": 8}]
    with Cluster(scripts.logs, faults=faults, **options) as cluster:
        first, second = cluster.start(2)
        cluster.form([first, second])
        with cluster.stopped(first, "step", 5):
            (third,) = cluster.start()
            cluster.form([first, second, third])
        cluster.results()
        assert len(list(cluster.directory.glob("fault-*"))) == len(faults)
        check(logged(cluster), undisturbed, options.get("every", 1))
        assert records_of(cluster.directory) == len(undisturbed[:: options.get("every", 1)]), "none is there twice"


def records_of(directory: Path) -> int:
    return len((directory / METRICS_FILE).read_text().splitlines())


def test_records_go_on_after_the_last_member_has_left_or_died() -> None:
    undisturbed = alone(scripts.logs)
    with Cluster(scripts.logs) as cluster:
        first = cluster.start()
        cluster.form(first)
        with cluster.stopped(first[0], "step", 7):
            cluster.leave(first[0])
        second = cluster.start()
        cluster.form(second)
        # Its steps are done again from the checkpoint that the first one has left.
        with cluster.stopped(second[0], "step", 12):
            cluster.kill(second[0])
        with (cluster.directory / METRICS_FILE).open("a") as file:
            file.write('{"time_s": 1.0, "gener')  # cut short
        cluster.form(cluster.start())
        cluster.results()
        check(logged(cluster), undisturbed)


def test_members_that_log_different_names_end_with_an_error_that_names_them() -> None:
    with Cluster(scripts.logs_different_names) as cluster:
        cluster.form(cluster.start(2))
        outcomes = cluster.outcomes().values()
    assert all("what is logged (rank 0: loss, rank 1: loss, other)" in outcome.value for outcome in outcomes)


@pytest.mark.ci
def test_a_record_that_only_one_member_has_is_not_lost() -> None:
    faults = [broken("after-reduce", 1, 4), {"point": "after-update", "how": "kill", "rank": 0, "step": 9}]
    with Cluster(scripts.logs, faults=faults) as cluster:
        cluster.form(cluster.start(3))
        cluster.results()
        check(logged(cluster), alone(scripts.logs))
