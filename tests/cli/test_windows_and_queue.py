"""`offcut windows` and `offcut queue` as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from offcut.traces.windows import read_windows

SWF = """; MaxNodes: 4
1 1000 0 100 3 -1 -1 3 200 -1 1 1 1 -1 -1 -1 -1 -1
2 1010 90 50 4 -1 -1 4 60 -1 1 1 1 -1 -1 -1 -1 -1
3 1020 130 50 1 -1 -1 1 60 -1 1 1 1 -1 -1 -1 -1 -1
4 1300 0 50 1 -1 -1 1 60 -1 1 1 1 -1 -1 -1 -1 -1
"""


@pytest.fixture
def offcut(completed: Callable) -> Callable:
    return completed


def test_windows_of_a_log(offcut: Callable, tmp_path: Path):
    log = tmp_path / "log.swf"
    log.write_text(SWF)
    out, figure = tmp_path / "w.csv.gz", tmp_path / "w.png"
    done = offcut("windows", log, "-o", out, "--figure", figure, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    windows = read_windows(out)
    assert document["windows"] == len(windows) == 5
    assert document["clock_zero_s"] == 1000
    assert document["idle_node_hours"] * 3600 == sum(w.length_s for w in windows)
    assert figure.read_bytes()[:4] == b"\x89PNG"
    again = offcut("windows", out, "--end", "300", "--json")
    assert json.loads(again.stdout)["idle_share"] == document["idle_share"]
    assert "idle" in offcut("windows", out).stdout


def test_windows_are_generated(offcut: Callable, tmp_path: Path):
    done = offcut(
        "windows", "--generate", "--nodes", "30", "--days", "2", "--seed", "4", "-o", tmp_path / "w.csv", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nodes"] == 30
    assert len(read_windows(tmp_path / "w.csv")) == json.loads(done.stdout)["windows"] > 0


def test_queue_writes_starts_and_windows(offcut: Callable, tmp_path: Path):
    log = tmp_path / "log.swf"
    log.write_text(SWF)
    done = offcut(
        "queue", log, "--scheduler", "easy", "--starts", tmp_path / "s.csv", "--windows", tmp_path / "w.csv", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    document = json.loads(done.stdout)
    assert document["mean_wait_s"] == (0 + 90 + 0 + 0) / 4
    assert document["recorded"]["mean_wait_s"] == (0 + 90 + 130 + 0) / 4
    assert (tmp_path / "s.csv").read_text() == "job,start_s\n1,1000\n2,1100\n3,1020\n4,1300\n"
    lines = (tmp_path / "w.csv").read_text().splitlines()
    assert lines[:3] == ["node,start_s,end_s,expected_end_s", "n0003,0,20,", "n0003,70,100,200"]
    assert "easy" in offcut("queue", log).stdout


def test_bad_input_gives_one_sentence_and_exit_code_2(offcut: Callable, tmp_path: Path):
    log = tmp_path / "log.swf"
    log.write_text(SWF + "5 1\n")
    for words in (("queue", log), ("windows", log)):
        done = offcut(*words)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr == f"offcut: {log}, line 6: 2 fields, but SWF has 18. Write -1 for unknown values.\n"
    log.write_text(SWF)
    assert offcut("queue", log, "--nodes", "3").returncode == 2
    assert json.loads(offcut("queue", log, "--nodes", "3", "--json").stdout)["next_step"] == "Give --nodes 4 or more."
    assert offcut("windows").returncode == 2
