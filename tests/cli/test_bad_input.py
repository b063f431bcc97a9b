"""Every bad input of the live commands gets one clear sentence, exit code 2, and no traceback."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from offcut.cli import main
from offcut.service.paths import StatePaths
from offcut.wire import messages, tokens


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("print('hello')\n")
    return path


@pytest.fixture
def short() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="offcut-test-"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Return exit code and standard error of `offcut ARGUMENTS`."""
    monkeypatch.setattr("sys.argv", ["offcut", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return int(ended.value.code or 0), " ".join(error.split())


def job_file(directory: Path, text: str) -> Path:
    path = directory / "job.toml"
    path.write_text(text)
    return path


GOOD = 'name = "a"\ncommand = ["train.py"]\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (GOOD + "colour = 3\n", "unknown key 'colour'"),
        (GOOD + 'sizes = "8:1"\n', "min 8 > max 1"),
        (GOOD + 'sizes = "0:4"\n', "0 is below 1"),
        (GOOD + 'sizes = "lots"\n', "'lots' cannot be read"),
        (GOOD + 'sizes = "1:8"\n[curve]\nnodes = [1, 4]\nrate = [1, 3]\n', "8 nodes lie outside the curve"),
        (GOOD + 'sizes = "1:4"\n[curve]\nnodes = [4, 1]\nrate = [1, 3]\n', "node counts must increase"),
        (
            GOOD + 'sizes = "1:4"\n[curve]\nnodes = [1, 4]\nrate = [1, nan]\n',
            "curve.rate.1: Input should be a finite number",
        ),
        (GOOD + "weight = -1\n", "weight"),
        (GOOD + 'max_failures = "many"\n', "max_failures"),
        (GOOD + 'mode = "sometimes"\n', "mode"),
        ('name = "a b"\ncommand = ["train.py"]\n', "name"),
        ('command = ["train.py"]\n', "name: Field required"),
        ('name = "a"\ncommand = ["gone.py"]\n', "there is no script"),
        (GOOD + 'workdir = "nowhere"\n', "nowhere is not a directory"),
        ("name = [\n", "is not TOML"),
    ],
)
def test_job_file(monkeypatch, capsys, tmp_path: Path, script: Path, text: str, sentence: str) -> None:
    path = job_file(tmp_path, text)
    code, error = run(monkeypatch, capsys, "submit", path, "--state", tmp_path)
    assert code == 2
    assert sentence in error
    assert str(path) in error


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--sizes", "3:2"], "min 3 > max 2"),
        (["--env", "NOVALUE"], "'NOVALUE' is not NAME=VALUE"),
        (["--workdir", "/nowhere/at/all"], "is not a directory"),
        (["--weight", "0"], "weight"),
        (["--name", "a/b"], "name"),
    ],
)
def test_submit_options(monkeypatch, capsys, tmp_path: Path, script: Path, options, sentence: str) -> None:
    code, error = run(monkeypatch, capsys, "submit", script, "--state", tmp_path, *options)
    assert code == 2
    assert sentence in error


def test_missing_script(monkeypatch, capsys, tmp_path: Path) -> None:
    code, error = run(monkeypatch, capsys, "submit", tmp_path / "gone.py", "--state", tmp_path)
    assert code == 2
    assert "there is no script" in error


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("node,start_s,end_s\nn1,5,3\n", "line 2, field end_s"),
        ("node,start_s,end_s\nn1,0,10\nn1,5,12\n", "overlap"),
        ("node,start_s,end_s\nn1,zero,10\n", "zero"),
        ("hello\n", "node"),
    ],
)
def test_windows_file(monkeypatch, capsys, tmp_path: Path, short: Path, text: str, sentence: str) -> None:
    path = tmp_path / "windows.csv"
    path.write_text(text)
    code, error = run(monkeypatch, capsys, "up", "--windows", path, "--state", short)
    assert code == 2
    assert sentence in error
    assert str(path) in error


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[settings]\nhurry = 1\n", "unknown key 'settings.hurry'"),
        ("[setings]\n", "unknown key 'setings'"),
        ('[settings]\nhorizon_s = "long"\n', "settings.horizon_s"),
        ('[settings]\nprofiler = "best"\n', "settings.profiler: unknown profiler 'best'"),
        ("[settings]\nhold_s = -1\n", "settings.hold_s: -1 is negative"),
    ],
)
def test_configuration_file(monkeypatch, capsys, tmp_path: Path, short: Path, text: str, sentence: str) -> None:
    path = tmp_path / "offcut.toml"
    path.write_text(text)
    code, error = run(monkeypatch, capsys, "up", "--config", path, "--state", short)
    assert code == 2
    assert sentence in error


def test_no_controller_answers(monkeypatch, capsys, tmp_path: Path) -> None:
    code, error = run(monkeypatch, capsys, "status", "--state", tmp_path)
    assert code == 2
    assert "No controller answers" in error


def test_json_errors_are_json(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.argv", ["offcut", "status", "--json", "--state", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, error = capsys.readouterr()
    assert (ended.value.code, error) == (2, "")
    assert json.loads(out)["next_step"].startswith("Start one with: offcut up")


def test_state_directory_with_too_long_a_path(monkeypatch, capsys, tmp_path: Path) -> None:
    code, error = run(monkeypatch, capsys, "up", "--state", tmp_path / ("x" * 120))
    assert code == 2
    assert "UNIX socket" in error


def test_state_directory_that_cannot_be_written(monkeypatch, capsys, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, error = run(monkeypatch, capsys, "up", "--state", tmp_path / "file" / "state")
    assert code == 2
    assert "cannot be written" in error


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="no /dev/full here")
def test_full_disk(monkeypatch, capsys, short: Path) -> None:
    (short / ".probe").symlink_to("/dev/full")
    code, error = run(monkeypatch, capsys, "up", "--state", short)
    assert code == 2
    assert "No space left" in error


def test_journal_of_another_version(monkeypatch, capsys, short: Path) -> None:
    with sqlite3.connect(short / "journal.sqlite") as database:
        database.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
        database.execute("INSERT INTO meta VALUES ('version', '999')")
    code, error = run(monkeypatch, capsys, "up", "--nodes", "1", "--state", short)
    assert code == 2
    assert "version 999" in error
    assert asyncio.run(_nothing_answers(StatePaths(short)))


async def _nothing_answers(paths: StatePaths) -> bool:
    try:
        await asyncio.open_unix_connection(str(paths.cluster / "cluster.sock"))
    except OSError:
        return True
    return False


def test_token_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    tokens.create(path)
    path.chmod(0o644)
    with pytest.raises(Exception, match="can be read by others"):
        tokens.read(path)


def test_old_agent_is_told_which_versions_differ() -> None:
    with pytest.raises(Exception, match="message version 0, this controller"):
        messages.check_version(0)
