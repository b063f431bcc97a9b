"""`offcut doctor`: what it finds, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from offcut.cli import main
from offcut.wire import tokens


def doctor(monkeypatch, capsys, state: Path) -> tuple[int, dict[str, dict[str, str]]]:
    monkeypatch.setattr("sys.argv", ["offcut", "doctor", "--json", "--state", str(state)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), {item["what"]: item for item in json.loads(capsys.readouterr().out)}


def test_doctor_without_findings_exits_0(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.chdir("/")
    code, found = doctor(monkeypatch, capsys, Path("/tmp/offcut-none"))
    assert code == 0
    assert found["loopback"]["verdict"] == "good"
    assert found["controller"]["found"] == "none answers here"


def test_a_key_that_others_can_read_is_bad(monkeypatch, capsys, tmp_path: Path) -> None:
    tokens.create(tmp_path / "agents.key")
    (tmp_path / "agents.key").chmod(0o644)
    code, found = doctor(monkeypatch, capsys, tmp_path)
    assert code == 1
    assert found["agents' key"]["verdict"] == "bad"
    assert "chmod 600" in found["agents' key"]["next_step"]


def test_a_path_too_long_for_sockets_is_bad(monkeypatch, capsys, tmp_path: Path) -> None:
    code, found = doctor(monkeypatch, capsys, tmp_path / ("x" * 120))
    assert code == 1
    assert found["state directory"]["verdict"] == "bad"
