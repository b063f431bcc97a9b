"""Readers of batch logs: SWF, sacct as text and as JSON, Philly; with the quirks that real files have."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from offcut.errors import InputError
from offcut.traces.batch_log import BatchJob, make_log
from offcut.traces.hostlist import expand_hosts
from offcut.traces.read_log import is_windows_file, read_log
from offcut.traces.swf import read_swf, write_swf

SWF = """; Computer: a small one
; MaxNodes: 8
; MaxProcs: 16

1 0 5 100 4 -1 -1 4 200 -1 1 1 1 -1 -1 -1 -1 -1
2 10 -1 50 -1 -1 -1 2 -1 -1 1 1 1 -1 -1 -1 -1 -1
3 10 0 -1 4 -1 -1 4 200 -1 5 1 1 -1 -1 -1 -1 -1
"""


def put(tmp_path: Path, text: str, name: str = "log.swf") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_swf_fields_and_unknown_values(tmp_path: Path):
    log = read_log(put(tmp_path, SWF))
    assert log.jobs == (
        BatchJob(id="1", submit_s=0, start_s=5, run_s=100, requested_s=200, nodes=4),
        BatchJob(id="2", submit_s=10, start_s=None, run_s=50, requested_s=None, nodes=2),
    )
    assert log.machine == 16
    assert log.unit == "processors"
    assert log.notes == ("Jobs without run time or processors, left out: 1.",)


def test_swf_in_nodes_of_several_processors(tmp_path: Path):
    log = read_log(put(tmp_path, SWF)).in_nodes(3)
    assert [job.nodes for job in log.jobs] == [2, 1]
    assert log.machine == 6
    assert log.unit == "nodes"
    with pytest.raises(InputError, match="0 nodes do not make a node"):
        log.in_nodes(0)


def test_swf_with_metacentrums_hosts(tmp_path: Path):
    rows = [
        f"{i} {i} 0 9 2 -1 -1 2 9 -1 1 1 1 1 -1 1 -1 -1 {{{hosts}}} q_1d 1:ppn=2"
        for i, hosts in enumerate(("7,7", "7,8"))
    ]
    log = read_log(put(tmp_path, "\n".join(rows)))
    assert [job.node_list for job in log.jobs] == [("7",), ("7", "8")]
    assert [job.nodes for job in log.jobs] == [1, 2]
    assert (log.unit, log.machine) == ("nodes", 2)


def test_swf_survives_writing(tmp_path: Path):
    log = read_log(put(tmp_path, SWF))
    write_swf(tmp_path / "again.swf.gz", log.jobs, 16)
    assert read_swf(tmp_path / "again.swf.gz").jobs == log.jobs


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 0 5 100 4\n", "line 1: 5 fields, but SWF has 18"),
        (SWF + "4 x 0 1 4 -1 -1 4 200 -1 1 1 1 -1 -1 -1 -1 -1\n", "line 8, field submit: 'x' is not a number"),
        (SWF + "4 9 0 1 4 -1 -1 4 200 -1 1 1 1 -1 -1 -1 -1 -1\n", "line 8, field submit: the clock goes back from 10"),
        ("4 -1 0 1 4 -1 -1 4 200 -1 1 1 1 -1 -1 -1 -1 -1\n", "line 1, field submit: -1"),
        ("1" + " 0" + " -1" * 16 + "\n", "no job in it ran. Jobs without run time or processors, left out: 1."),
        ("; MaxNodes: 8\n", "no job in it ran"),
    ],
)
def test_bad_swf_names_line_and_field(tmp_path: Path, text: str, sentence: str):
    with pytest.raises(InputError, match=r"log\.swf") as error:
        read_log(put(tmp_path, text))
    assert sentence in error.value.what
    assert error.value.next_step


def test_truncated_swf(tmp_path: Path):
    path = tmp_path / "log.swf.gz"
    path.write_bytes(gzip.compress((SWF * 50).encode())[:-20])
    with pytest.raises(InputError, match=r"log\.swf\.gz: the gzip file is truncated"):
        read_log(path)


def test_a_file_that_is_not_a_log_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="line 1: 'hello' is not the first line of a known format"):
        read_log(put(tmp_path, "\nhello\n"))
    assert is_windows_file(put(tmp_path, "node,start_s,end_s\n"))
    with pytest.raises(InputError, match="holds idle windows, not jobs"):
        read_log(put(tmp_path, "node,start_s,end_s\n"))
    assert not is_windows_file(put(tmp_path, SWF))


HEADER = "JobID|JobName|Submit|Start|End|Elapsed|State|NNodes|Timelimit|NodeList"
PLAIN = "1|a|2021-10-05T11:00:00|2021-10-05T11:10:00|2021-10-05T12:10:00|01:00:00|COMPLETED|3|1-02:00:00|n[1-2,5]"


def sacct(*rows: str) -> str:
    return "\n".join((HEADER, *rows)) + "\n"


def test_sacct_fields(tmp_path: Path):
    log = read_log(put(tmp_path, sacct(PLAIN), "sacct.txt"))
    assert log.jobs == (
        BatchJob(
            id="1",
            submit_s=1633431600,
            start_s=1633432200,
            run_s=3600,
            requested_s=93_600,
            nodes=3,
            node_list=("n1", "n2", "n5"),
        ),
    )


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ("1-02:00:00", 93_600),
        ("02:30:00", 9_000),
        ("90:00", 5_400),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("", None),
    ],
)
def test_sacct_time_limits(tmp_path: Path, limit: str, seconds: float | None):
    row = PLAIN.replace("1-02:00:00", limit)
    assert read_log(put(tmp_path, sacct(row), "s.txt")).jobs[0].requested_s == seconds


def test_sacct_quirks(tmp_path: Path):
    text = sacct(
        PLAIN,
        PLAIN.replace("1|a", "1.batch|batch", 1),
        PLAIN.replace("1|a", "2|awk '{print $1}' | sort | uniq", 1),
        PLAIN.replace("1|a", "3|two\nlines", 1),
        PLAIN.replace("1|a", "4_17|array", 1).replace("COMPLETED", "CANCELLED by 1004"),
        "5|waits|2021-10-05T11:00:00|Unknown|Unknown|00:00:00|PENDING|1|01:00:00|None assigned",
        "6|never|2021-10-05T11:00:00|2021-10-05T11:05:00|2021-10-05T11:05:00|00:00:00|CANCELLED|1|01:00:00|",
        "7|runs|2021-10-05T11:00:00|2021-10-05T11:40:00|Unknown|00:30:00|RUNNING|1|01:00:00|n9",
        "a|piece|of a row",
    )
    log = read_log(put(tmp_path, text, "s.txt"))
    assert [job.id for job in log.jobs] == ["1", "2", "3", "4_17", "7"]
    assert log.jobs[-1].run_s == 1800
    assert log.notes == (
        "Pieces of broken rows, left out (the first in line 11): 1.",
        "Jobs that never ran, left out: 2.",
        "Jobs without an end yet, taken to last to the end of the log: 1.",
    )


def test_sacct_with_a_trailing_bar_epoch_times_and_no_node_list(tmp_path: Path):
    text = "JobIDRaw|JobID|Submit|Start|End|AllocNodes|TimelimitRaw|\n8|8|100|200|500|4|10|\n"
    (only,) = read_log(put(tmp_path, text, "s.txt")).jobs
    assert only == BatchJob(id="8", submit_s=100, start_s=200, run_s=300, requested_s=600, nodes=4)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("JobID|Submit|Start|NNodes\n", "line 1: the header has no column End"),
        ("JobID|Submit|Start|End\n", "line 1: the header has no column NNodes"),
        (sacct(PLAIN.replace("T12:10:00", "T10:10:00")), "line 2, field End: job 1 ends 3600 s before its start"),
        (sacct(PLAIN.replace("T11:10:00", "T11:61:00")), "line 2, field Start: '2021-10-05T11:61:00' is not a time"),
        (sacct(PLAIN.replace("n[1-2,5]", "n[1-")), "line 2, field NodeList: host list 'n[1-'"),
        (sacct("a|piece"), "no job in it ran"),
    ],
)
def test_bad_sacct_names_line_and_field(tmp_path: Path, text: str, sentence: str):
    with pytest.raises(InputError, match=r"s\.txt") as error:
        read_log(put(tmp_path, text, "s.txt"))
    assert sentence in error.value.what


OLD_JSON = {
    "job_id": 11, "allocation_nodes": 2, "nodes": "n[01-02]", "steps": [],
    "time": {"submission": 100, "start": 200, "end": 500, "limit": 60, "elapsed": 300},
}  # fmt: skip
NEW_JSON = {
    "job_id": 12, "allocation_nodes": 1, "nodes": "n03", "state": {"current": ["COMPLETED"]},
    "time": {"submission": 150, "start": 250, "end": 400, "limit": {"set": True, "infinite": False, "number": 5}},
}  # fmt: skip
PENDING_JSON = {
    "job_id": 13, "allocation_nodes": 0, "nodes": "None assigned",
    "time": {"submission": 160, "start": 0, "end": 0, "limit": {"set": False, "infinite": True, "number": 0}},
}  # fmt: skip


def test_sacct_json_of_old_and_new_slurm(tmp_path: Path):
    log = read_log(put(tmp_path, json.dumps({"meta": {}, "jobs": [OLD_JSON, NEW_JSON, PENDING_JSON]}), "s.json"))
    assert log.jobs == (
        BatchJob(id="11", submit_s=100, start_s=200, run_s=300, requested_s=3600, nodes=2, node_list=("n01", "n02")),
        BatchJob(id="12", submit_s=150, start_s=250, run_s=150, requested_s=300, nodes=1, node_list=("n03",)),
    )
    assert log.notes == ("Jobs that never ran, left out: 1.",)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "line 1: not JSON"),
        ("{}", "field jobs: Field required"),
        ('{"jobs": [{"job_id": 1, "time": {"submission": 1, "start": "x", "end": 2}}]}', "field jobs.0.time.start"),
    ],
)
def test_bad_sacct_json_names_the_field(tmp_path: Path, text: str, sentence: str):
    with pytest.raises(InputError, match=r"s\.json") as error:
        read_log(put(tmp_path, text, "s.json"))
    assert sentence in error.value.what


def test_philly_in_any_order_without_starts(tmp_path: Path):
    text = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:00:10,66.0,2,132.0,a\n"
        "2017-10-09 07:00:00,5.0,1,5.0,b\n"
        "2017-10-09 07:00:00,0.0,1,0.0,b\n"
    )
    log = read_log(put(tmp_path, text, "p.csv"))
    assert [(job.id, job.run_s, job.nodes, job.start_s) for job in log.jobs] == [("2", 5, 1, None), ("1", 66, 2, None)]
    assert log.jobs[1].submit_s - log.jobs[0].submit_s == 10
    assert log.unit == "GPUs"
    with pytest.raises(InputError, match="line 5, field duration: 'long' is not a number"):
        read_log(put(tmp_path, text + "2017-10-09 07:00:00,long,1,0.0,b\n", "p.csv"))
    with pytest.raises(InputError, match="line 5, field timestamp: 'noon' is not a time"):
        read_log(put(tmp_path, text + "noon,1,1,0.0,b\n", "p.csv"))


def test_host_lists():
    assert expand_hosts("b[002-003,7],login1") == ("b002", "b003", "b7", "login1")
    assert expand_hosts("r[1-2]n[09-10]") == ("r1n09", "r1n10", "r2n09", "r2n10")
    for bad in ("n[1-", "n[3-1]", "n[a-b]", "a,,b", "n]1["):
        with pytest.raises(InputError, match="host list"):
            expand_hosts(bad)


def test_a_machine_is_at_least_as_wide_as_its_widest_job():
    log = make_log("x", [BatchJob(id="1", submit_s=0, run_s=1, nodes=5)], machine=3)
    assert log.size(None) == 5
    assert log.size(9) == 9


@pytest.mark.parametrize(
    ("name", "jobs", "unit", "machine"),
    [
        ("CEA-Curie-2011-sample30k.swf.gz", 29_998, "processors", 93_312),
        ("KTH-SP2-1996-2-filtered28481.swf.gz", 28_481, "processors", 100),
        ("MetaCentrum-wagap-2013-ext.swf.gz", 17_898, "nodes", 44),
        ("alcf-theta_2022.swf.gz", 23_911, "processors", 4_360),
        ("philly-jobs-82k.csv.gz", 82_247, "GPUs", None),
        ("sacct-format-samples/sacct_simple.log", 4, "nodes", 4),
        ("sacct-format-samples/sacct_dump2101.log", 6, "nodes", 2),
        ("sacct-format-samples/sacct_dump2110.log", 5, "nodes", 1),
    ],
)
def test_real_logs(shared: Path, name: str, jobs: int, unit: str, machine: int | None):
    log = read_log(shared / "data/logs" / name)
    assert (len(log.jobs), log.unit, log.machine) == (jobs, unit, machine)


def test_real_sacct_rows_are_put_under_their_columns(shared: Path):
    """Every job row of the 2021-10 sample is the same job, with more and more bars in its free text."""
    log = read_log(shared / "data/logs/sacct-format-samples/sacct_dump2110.log")
    assert {(job.id, job.run_s, job.requested_s, job.node_list) for job in log.jobs} == {
        ("7957382", 56, 86_400, ("cpn-v09-10",))
    }
