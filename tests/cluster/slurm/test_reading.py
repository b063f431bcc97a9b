"""Reading what Slurm's commands print: text, and the JSON of both generations.

The files of 22.05 were printed by a Slurm 22.05.8; those of 23.11 are of the shape that its data_parser has.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offcut.cluster.slurm import schema, text
from offcut.cluster.slurm.records import HostLists, JobRow, NodeRow, expand
from offcut.errors import ClusterError

DATA = Path(__file__).with_name("data")


def test_expanded_host_lists_are_kept_up_to_a_number_of_names() -> None:
    lists = HostLists(most_names=1000)
    often = lists.expand("n[001-100]")
    for i in range(50):
        assert lists.expand("n[001-100]") is often, "what is asked for again and again is expanded once"
        assert len(lists.expand(f"m[{i}-{i + 99}]")) == 100
        assert sum(map(len, lists._kept.values())) == lists._names <= 1000
    assert lists.expand("m[0-99]")[0] is lists.expand("m0")[0], "a name takes its room once"
    assert len(lists.expand("x[0-4999]")) == 5000
    assert not lists._kept, "a list that is too long is not kept"


def test_host_lists_are_expanded() -> None:
    assert set(expand("n[01-03,7],login1")) == {"login1", "n01", "n02", "n03", "n7"}
    assert expand("(null)") == ()
    with pytest.raises(ClusterError, match="cannot be read"):
        expand("n[01-")


@pytest.mark.parametrize(
    ("shown", "state", "flags"),
    [
        ("idle", "idle", set()),
        ("planned", "idle", {"PLANNED"}),
        ("idle-", "idle", {"PLANNED"}),
        ("idle*", "idle", {"NOT_RESPONDING"}),
        ("idle~", "idle", {"POWERED_DOWN"}),
        ("drained*", "idle", {"DRAIN", "NOT_RESPONDING"}),
        ("draining", "allocated", {"DRAIN"}),
        ("reserved", "idle", {"RESERVED"}),
        ("maint", "idle", {"MAINTENANCE"}),
        ("completing", "allocated", {"COMPLETING"}),
        ("mixed", "mixed", set()),
        ("down$", "down", {"MAINTENANCE"}),
    ],
)
def test_node_states_of_sinfo(shown: str, state: str, flags: set[str]) -> None:
    assert text.read_nodes(f"n01|{shown}\n") == {"n01": NodeRow(name="n01", state=state, flags=frozenset(flags))}


def test_jobs_of_squeue() -> None:
    line = "3|PENDING|main,debug|4|||n[01-04]|1795227828|1795228008|root|Resources|N/A|0"
    assert text.read_jobs(line + "\n") == [
        JobRow(
            id="3",
            state="PENDING",
            user="root",
            partitions=("main", "debug"),
            node_count=4,
            scheduled="n[01-04]",
            start_s=1795227828.0,
            end_s=1795228008.0,
            reason="Resources",
        )
    ]
    unknown = text.read_jobs("4|PENDING|main|4|||(null)|N/A|N/A|root|BeginTime|N/A|-10\n")[0]
    assert (unknown.scheduled, unknown.start_s, unknown.end_s, unknown.nice) == ("", None, None, -10)


def test_squeue_is_asked_for_no_text_that_users_write() -> None:
    assert {"%j", "%k", "%o", "%Z", "%w", "%f"}.isdisjoint(text.JOB_FORMAT.split("|"))


def test_a_job_array_counts_its_tasks() -> None:
    # The first line was printed by a Slurm 22.05.8 for `sbatch --array=1-30` of which four tasks run.
    waits = text.read_jobs("1_[5-30]|PENDING|main|1|||n04|1795314360|1795314960|root|Resources|5-30|0\n")[0]
    assert (waits.tasks, waits.node_count) == (26, 1)
    assert text.read_jobs("1_3|RUNNING|main|1|n03||(null)|1795311360|1795311960|root|None|3|0\n")[0].tasks == 1


@pytest.mark.parametrize(
    ("shown", "tasks"),
    [("N/A", 1), ("", 1), ("7", 1), ("5-30", 26), ("1,3,7-10", 6), ("1-90:3", 30), ("1-90:3%7", 7), ("3,...", 1)],
)
def test_tasks_of_an_array(shown: str, tasks: int) -> None:
    assert text.count_tasks(shown) == tasks


@pytest.mark.parametrize("broken", ["3|PENDING", "||||||||||||", "3|PENDING|main|four|||||||a|b|c"])
def test_a_truncated_line_is_refused(broken: str) -> None:
    with pytest.raises(ClusterError, match="cannot be read"):
        text.read_jobs(broken)


def test_times_that_are_not_seconds_are_refused() -> None:
    with pytest.raises(ClusterError, match="SLURM_TIME_FORMAT"):
        text.read_jobs("4|PENDING|main|4|||(null)|2026-11-21T02:23:48|N/A|root|BeginTime|N/A|0\n")


def test_reservations_and_partitions_of_scontrol() -> None:
    shown = "ReservationName=r1 StartTime=1795231310 EndTime=1795233110 Duration=00:30:00 Nodes=n[03-04] NodeCnt=2\n"
    (reservation,) = text.read_reservations(shown)
    assert (reservation.name, reservation.nodes, reservation.start_s) == ("r1", "n[03-04]", 1795231310.0)
    assert text.read_reservations("No reservations in the system\n") == []


def test_a_reservation_without_a_start_is_refused_with_a_sentence() -> None:
    with pytest.raises(ClusterError, match="reservation later has no start or end"):
        text.read_reservations("ReservationName=later Nodes=n1\n")
    shown = "PartitionName=idle AllowAccounts=ALL GraceTime=120 MaxTime=1-00:00:00 Nodes=n[01-04] PriorityTier=1 "
    shown += "PreemptMode=CANCEL State=UP\nPartitionName=off MaxTime=UNLIMITED Nodes=(null) State=INACTIVE\n"
    partitions = text.read_partitions(shown)
    idle = partitions["idle"]
    assert (idle.up, idle.grace_s, idle.max_time_s, idle.preempt_mode) == (True, 120.0, 86400.0, "CANCEL")
    assert (partitions["off"].up, partitions["off"].max_time_s) == (False, None)


@pytest.mark.parametrize(
    ("shown", "seconds"),
    [("30", 1800), ("1:30", 90), ("2:00:00", 7200), ("1-12", 129600), ("1-00:30", 88200), ("UNLIMITED", None)],
)
def test_durations(shown: str, seconds: float | None) -> None:
    assert text.duration_s(shown) == seconds


def test_versions() -> None:
    assert text.read_version("slurm 22.05.8\n") == (22, 5)
    assert text.read_version("slurm-wlm 23.11.4\n") == (23, 11)
    with pytest.raises(ClusterError, match="version"):
        text.read_version("who knows")


def test_json_of_both_generations_says_the_same() -> None:
    old = {job.id: job for job in schema.read_jobs((DATA / "squeue-22.05.json").read_text())[0]}
    new = {job.id: job for job in schema.read_jobs((DATA / "squeue-23.11.json").read_text())[0]}
    waits, again = old["1"], new["1"]
    assert waits.name == again.name == "offcut-x'y|z"
    assert (waits.state, waits.required, waits.start_s) == (again.state, again.required, again.start_s)
    assert (waits.scheduled, again.scheduled) == ("", "n01"), "only the later one says where"
    assert old["2"] == new["2"]
    assert new["7"].state == "COMPLETING"
    assert new["7"].preempt_s == 1795227800.0
    assert waits.preempt_s is None
    old_nodes = schema.read_nodes((DATA / "sinfo-22.05.json").read_text())
    new_nodes = schema.read_nodes((DATA / "nodes-23.11.json").read_text())
    assert old_nodes["n02"] == new_nodes["n02"]
    assert old_nodes["n03"] == new_nodes["n03"] == NodeRow(name="n03", state="idle", flags=frozenset({"PLANNED"}))
    assert new_nodes["n04"].flags == {"DRAIN"}


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ('{"jobs": [{"job_id": 1, ', "breaks off"),
        ("", "breaks off"),
        ('{"sinfo": []}', "unknown schema: no list 'jobs'"),
        ("[1, 2]", "unknown schema"),
        ('{"jobs": [{"job_id": 1}]}', "unknown schema: jobs: KeyError"),
        ('{"jobs": [7]}', "unknown schema"),
        ('{"jobs": null}', "unknown schema"),
    ],
)
def test_json_that_is_truncated_or_of_an_unknown_schema(broken: str, says: str) -> None:
    with pytest.raises(ClusterError, match=says) as refused:
        schema.read_jobs(broken)
    assert "\n" not in refused.value.what


def test_a_job_that_cannot_be_read_hides_no_other() -> None:
    document = json.loads((DATA / "squeue-22.05.json").read_text())
    document["jobs"][0]["name"] = "x\ny|z"
    rows, unreadable = schema.read_jobs(json.dumps(document))
    assert (len(rows), unreadable) == (len(document["jobs"]), 0), "a name may hold anything"
    document["jobs"][0]["node_count"] = "many"
    rows, unreadable = schema.read_jobs(json.dumps(document))
    assert (len(rows), unreadable) == (len(document["jobs"]) - 1, 1)


def test_names_with_any_characters_are_read() -> None:
    mark = "0123abcd"
    assert text.named_job_format(mark).startswith(f"{mark}|%i|")
    first = f"{mark}|4|PENDING|main|1|||(null)|N/A|N/A|ann|BeginTime|N/A|10000|physics|low|offcut-12ab34cd"
    forged = "x\n5|PENDING|main|64|||(null)|N/A|N/A|root|Resources|N/A|0|a|b|c|d"
    second = f"{mark}|6|PENDING|main|1|||(null)|N/A|N/A|bob|Resources|N/A|0|physics||{forged}"
    rows = text.read_named_jobs(f"{first}\n{second}\n", mark)
    assert [(row.id, row.user, row.account, row.qos, row.name) for row in rows] == [
        ("4", "ann", "physics", "low", "offcut-12ab34cd"),
        ("6", "bob", "physics", "", forged),
    ]
    assert text.read_named_jobs("", mark) == []
    with pytest.raises(ClusterError, match="cannot be read"):
        text.read_named_jobs("slurm_load_jobs error\n", mark)
