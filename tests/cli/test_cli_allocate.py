"""`offcut allocate` as its users start it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

PROBLEM: dict[str, Any] = {
    "nodes": 5,
    "horizon_s": 120,
    "jobs": [
        {"id": "a", "curve": {"nodes": [1, 2, 4], "rate": [100, 190, 340]}, "current": 2, "grow_cost_s": 18},
        {"id": "b", "curve": {"nodes": [1, 2, 4], "rate": [50, 99, 190]}},
    ],
}


@pytest.fixture
def offcut(completed: Callable) -> Callable:
    """`offcut(*ARGUMENTS, stdin="")` runs `offcut allocate`."""
    return partial(completed, "allocate")


@pytest.fixture
def path(tmp_path: Path) -> str:
    place = tmp_path / "p.json"
    place.write_text(json.dumps(PROBLEM, indent=1))
    return str(place)


def test_json_is_one_document(offcut: Callable, path: str) -> None:
    done = offcut(path, "--json", "--explain")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer["nodes"] == {"a": 4, "b": 1}
    assert answer["objective"] == answer["bound"] == 43380
    assert answer["proven"] is True
    assert answer["explain"]["a"]["cause"] == "bound"


def test_json_lines_in_json_lines_out(offcut: Callable, tmp_path: Path) -> None:
    lines = "\n".join(json.dumps(PROBLEM | {"nodes": n}) for n in (1, 2, 3))
    done = offcut("-", "--json", "--time-limit", "5", stdin=lines)
    assert [sum(json.loads(line)["nodes"].values()) for line in done.stdout.splitlines()] == [1, 2, 3]


def test_people_get_a_table_and_reasons(offcut: Callable, path: str) -> None:
    done = offcut(path, "--explain")
    assert done.returncode == 0
    assert "5 of 5 nodes used, objective 43380 (proven optimal)" in done.stdout
    assert "It does not grow because 4 is its largest size." in done.stdout


def test_solvers_agree_and_policies_are_compared_with_the_optimum(offcut: Callable, path: str) -> None:
    assert json.loads(offcut(path, "--json", "--solver", "milp").stdout)["objective"] == pytest.approx(43380)
    answer = json.loads(offcut(path, "--json", "--policy", "equal-share", "--objective", "samples").stdout)
    assert answer["nodes"] == {"a": 3, "b": 2}
    assert answer["objective"] < answer["bound"] == 43380
    assert answer["proven"] is False


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        ("{", [], "not JSON"),
        (json.dumps(PROBLEM | {"nodes": 0}), [], "field nodes"),
        (json.dumps(PROBLEM), ["--policy", "none.py"], "not found"),
        (json.dumps(PROBLEM), ["--policy", "greedy", "--solver", "exact"], "exclude each other"),
        (json.dumps(PROBLEM | {"max_resizes": 1}), ["--solver", "exact"], "--solver milp"),
        (json.dumps(PROBLEM | {"nodes": 1}).replace('"current": 2', '"current": 2, "locked": true'), [], "job 'a'"),
        (json.dumps(PROBLEM), ["--solver", "magic"], "--solver"),
    ],
)
def test_faults_exit_2_with_a_sentence(
    offcut: Callable, tmp_path: Path, content: str, arguments: list[str], said: str
) -> None:
    path = tmp_path / "p.json"
    path.write_text(content)
    done = offcut(str(path), *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_with_json_faults_are_json_too(offcut: Callable, path: str) -> None:
    done = offcut(path + ".missing", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["next_step"]
