"""A command line that cannot be read is answered with one sentence that says what to write instead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_api import FakeClient

from offcut.cli import error_report


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["submit", "train.py", "--lr", "0.1"], "as in: offcut submit train.py -- --lr ..."),
        (["submit", "train.py", "sizes", "1:4"], "If you mean the option, write --sizes."),
        (["submit", "train.py", "3", "4", "--sizes", "1:4"], "Write: offcut submit train.py ... -- 3 4"),
        (["submit", "train.py", "3", "--", "4"], "Write: offcut submit train.py ... -- 3 4"),
        (["change", "a", "sizes", "1:4"], "Did you mean the option --sizes?"),
        (["up", "nodes", "3"], "Did you mean the option --nodes?"),
        (["status", "--al"], "--all"),
        (["stauts"], "No such command 'stauts'"),
        (["status", "--state"], "requires an argument"),
        (["submit", "train.py", "--weight", "much"], "--weight"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_answered_with_the_right_form(offcut, words: list[str], sentence: str) -> None:
    code, out, error = offcut(*words)
    assert code == 2
    assert out == ""
    assert sentence in error
    assert error.count("\n") == 1


def test_arguments_after_the_dashes_belong_to_the_script(offcut, monkeypatch, tmp_path: Path) -> None:
    posted = []

    def post(self, path: str, body):
        posted.append(body)
        return {"id": "train-1", "sizes": "1:8"}

    monkeypatch.setattr(FakeClient, "post", post)
    monkeypatch.setattr("offcut.client.controller.Client", FakeClient)
    (tmp_path / "train.py").write_text("")
    script = tmp_path / "train.py"
    assert offcut("submit", script, "--sizes", "1:2", "--", "--json", "sizes", "--", "3")[0] == 0
    assert offcut("submit", "--", script, "3")[0] == 0
    assert [body["command"][1:] for body in posted] == [["--json", "sizes", "--", "3"], ["3"]]
    assert posted[0]["sizes"] == "1:2"


@pytest.mark.parametrize("name", [".", "..", "--help", "-x", ".hidden", "+1", "a/b", "", "a b", "\x1b[31m", "x" * 81])
def test_names_that_no_job_may_have(offcut, tmp_path: Path, name: str) -> None:
    (tmp_path / "train.py").write_text("")
    code, _, error = offcut("submit", tmp_path / "train.py", f"--name={name}")
    assert code == 2
    assert "options: name: " in error


@pytest.mark.parametrize(
    ("job", "path"),
    [("..", "%2E%2E"), ("a/b?c#d", "a%2Fb%3Fc%23d"), ("--help", "--help"), ("é", "%C3%A9"), ("\udcff", "%3F")],
)
def test_a_job_name_is_never_read_as_another_api_path(offcut, monkeypatch, job: str, path: str) -> None:
    asked = []
    monkeypatch.setattr(FakeClient, "get", lambda self, path, **_: asked.append(path) or {"id": "a", "directory": "/x"})
    monkeypatch.setattr("offcut.client.controller.Client", FakeClient)
    offcut("logs", "--", job)
    assert asked == [f"/v1/jobs/{path}/directory"]


def test_an_unexpected_exception_writes_its_traceback_to_a_file(offcut, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(FakeClient, "get", fail)
    monkeypatch.setattr("offcut.client.controller.Client", FakeClient)
    code, out, error = offcut("status")
    assert (code, out) == (1, "")
    assert "This is a defect of offcut: RuntimeError: unforeseen." in error
    written = Path(next(word for word in error.split() if "offcut-defect-" in word).rstrip(","))
    assert "Traceback" in written.read_text()
    assert written.stat().st_mode & 0o077 == 0
    written.unlink()


def test_steps_done_again_are_shown_as_a_lower_bound(offcut, monkeypatch) -> None:
    monkeypatch.setattr("offcut.client.controller.Client", FakeClient)
    code, out, _ = offcut("status")
    assert code == 0
    assert "≥ 1 " in out


def test_a_file_that_cannot_be_written_is_named(offcut, tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("node,start_s,end_s\nn1,0,1000\n")
    code, _, error = offcut("windows", tmp_path / "w.csv", "-o", tmp_path / "gone" / "w.csv")
    assert code in (1, 2)
    assert str(tmp_path / "gone") in error
    assert "Traceback" not in error


def test_json_after_the_dashes_belongs_to_the_script() -> None:
    assert error_report.wants_json(["status", "--json"])
    assert not error_report.wants_json(["submit", "train.py", "--", "--json"])


def test_a_reader_that_goes_away_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("node,start_s,end_s\nn1,0,1000\n")
    words = [sys.executable, "-m", "offcut", "windows", str(tmp_path / "w.csv"), "--json"]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_an_ascii_terminal_and_a_closed_pipe(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("node,start_s,end_s\nn1,0,1000\n")
    words = [sys.executable, "-m", "offcut", "windows", str(tmp_path / "w.csv")]
    few = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, env=few, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert "Traceback" not in running.stderr.read()
