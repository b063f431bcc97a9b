"""`fake_api` beside this file is a module that the tests here share."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from live import state_dir  # noqa: F401
from offcut.cli import main

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def offcut(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., tuple]:
    """`offcut(*ARGUMENTS)`: exit code, standard output and standard error of the command, run in this process."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["offcut", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, error = capfdbinary.readouterr()
        return int(ended.value.code or 0), out.decode(), error.decode()

    return run


@pytest.fixture
def completed(
    offcut: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`completed(*ARGUMENTS, stdin="")`: the same as what subprocess.run returns of a process, whose start it saves."""

    def run(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        return subprocess.CompletedProcess(arguments, *offcut(*arguments))

    return run
