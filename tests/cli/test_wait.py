"""`offcut wait` and `offcut submit --follow`: they end with the job, and with its script's exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeClient, job

from offcut.client import connection
from offcut.client import job as client_job
from offcut.errors import UnreachableError


class Jobs:
    """The answers about each job, one after another; the last one stays. An exception is raised."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.asked = 0

    def get(self, path: str) -> dict[str, Any]:
        name = path.split("/")[3]
        if path.endswith("/directory"):
            return {"id": name, "directory": str(FakeClient.directory)}
        self.asked += 1
        mine = self.answers[name]
        answer = mine.pop(0) if len(mine) > 1 else mine[0]
        if isinstance(answer, BaseException):
            raise answer
        state, code = answer
        return job("what") | {"id": name, "state": state, "exit_code": code}


RUNS = ("running", None)
GONE = UnreachableError("No controller answers.")


@pytest.fixture
def jobs(monkeypatch, tmp_path: Path):
    def serve(**answers: list[Any]) -> Jobs:
        served = Jobs(**answers)
        monkeypatch.setattr(FakeClient, "get", lambda self, path, **_: served.get(path))
        return served

    monkeypatch.setattr(FakeClient, "directory", tmp_path)
    monkeypatch.setattr("offcut.client.controller.Client", FakeClient)
    for module, name in (
        (client_job, "_ASK_S"),
        (connection, "_AGAIN_S"),
        (client_job, "_ASK_WHILE_FOLLOWING_S"),
        (client_job, "_SETTLE_S"),
    ):
        monkeypatch.setattr(module, name, 0.0)
    return serve


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        (("finished", 0), "a is finished."),
        (("failed", 7), "a has failed with exit code 7: what"),
        (("failed", 137), "a has failed with exit code 137: what"),
        (("cancelled", 143), "a is cancelled."),
    ],
)
def test_the_exit_code_is_the_jobs(offcut, jobs, end, sentence) -> None:
    jobs(a=[RUNS, ("paused", None), RUNS, end])
    assert offcut("wait", "a") == (end[1], f"{sentence}\n", "")


def test_of_several_jobs_the_highest_exit_code_counts(offcut, jobs) -> None:
    jobs(a=[RUNS, ("failed", 3)], b=[RUNS, ("finished", 0)], c=[("failed", 1)])
    code, out, _ = offcut("wait", "a", "b", "c")
    assert (code, len(out.splitlines())) == (3, 3)
    jobs(a=[("failed", 3)], b=[("finished", 0)])
    code, out, _ = offcut("wait", "a", "b", "--json")
    told = json.loads(out)
    assert (code, told["exit_code"], [job["state"] for job in told["jobs"]]) == (3, 3, ["failed", "finished"])


def test_a_controller_that_is_restarted_is_waited_for(offcut, jobs) -> None:
    jobs(a=[RUNS, GONE, GONE, RUNS, ("finished", 0)])
    code, out, error = offcut("wait", "a")
    assert (code, out) == (0, "a is finished.\n")
    assert [line.partition(":")[0] for line in error.splitlines()] == [
        "The controller does not answer",
        "The controller answers again.",
    ]


def test_a_controller_that_is_not_there_is_an_error_at_once(offcut, jobs) -> None:
    jobs(a=[GONE])
    assert offcut("wait", "a") == (2, "", "offcut: No controller answers.\n")


@pytest.mark.parametrize("answer", [RUNS, GONE])
def test_a_timeout_has_an_exit_code_of_its_own(offcut, jobs, answer) -> None:
    served = jobs(a=[RUNS, answer])
    code, out, _ = offcut("wait", "a", "--timeout", "0.01")
    assert (code, out) == (124, "a has not ended: it is running.\n")
    assert served.asked >= 1


def test_ctrl_c_leaves_the_jobs_alone(offcut, jobs, monkeypatch) -> None:
    posted = []
    monkeypatch.setattr(FakeClient, "post", lambda self, path, body=None: posted.append(path))
    jobs(a=[RUNS, KeyboardInterrupt()])
    assert offcut("wait", "a") == (130, "", "Interrupted: the jobs go on.\n")
    assert posted == []


def test_submit_follow_prints_the_log_and_ends_as_wait_does(offcut, jobs, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "n01#1:0.log"
    log.write_bytes(b"first\n\x1b[0m\n")
    (tmp_path / "train.py").write_text("")
    jobs(what=[RUNS, GONE, RUNS, ("failed", 9)])
    FakeClient.text = "what"
    try:
        code, out, error = offcut("submit", tmp_path / "train.py", "--follow")
    finally:
        FakeClient.text = "plain"
    assert (code, out) == (9, "==> n01#1:0 <==\nfirst\n\x1b[0m\n")
    assert error.splitlines()[0].startswith("Submitted what")
    assert error.splitlines()[-1] == "what has failed with exit code 9: what"
    assert offcut("submit", tmp_path / "train.py", "--follow", "--json")[0] == 2
