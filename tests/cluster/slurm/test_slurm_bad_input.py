"""User errors about Slurm: one sentence, exit code 2, no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from offcut.cli import main


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """`up` makes the log write to this test's standard error, which is closed after it."""
    yield
    structlog.reset_defaults()


def up(monkeypatch, capsys, *arguments: str) -> str:
    """Return what `offcut up --cluster slurm …` prints; it must end with 2."""
    monkeypatch.setattr("sys.argv", ["offcut", "up", "--cluster", "slurm", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2, said
    assert "Traceback" not in said
    return " ".join(said.split())


def test_no_slurm_on_the_machine(monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = up(monkeypatch, capsys, "--partition", "idle", "--state", str(tmp_path / "s"))
    assert "Slurm is not on this machine: sinfo" in said
    said = up(monkeypatch, capsys, "--partition", "idle", "--dry-run", "--state", str(tmp_path / "s"))
    assert "Slurm is not on this machine" in said


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "slurm.partition is missing"),
        (["--partition", "idle; rm -rf /"], "slurm.partition: 'idle; rm -rf /' is not a name that Slurm can have"),
        (["--partition", "--help"], "slurm.partition"),
        (["--partition", "idle", "--account", "$(id)"], "slurm.account: '$(id)' is not a name"),
        (["--partition", "idle", "--mode", "nice"], "'nice' is not one of"),
    ],
)
def test_invalid_options(monkeypatch, capsys, tmp_path: Path, options: list[str], says: str) -> None:
    assert says in up(monkeypatch, capsys, *options, "--state", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[slurm]\npartition = 'idle'\ncolour = 'red'\n", "unknown key 'slurm.colour'"),
        ("[slurm]\npartition = 'idle'\nmax_share = 1.5\n", "slurm.max_share"),
        ("[slurm]\npartition = 'idle'\nquiet = ['8 to 6']\n", "'8 to 6' are not quiet hours"),
        ("[slurm]\npartition = 'idle'\ngres = 'gpu:1 $(touch x)'\n", "a character that belongs to a shell"),
        ("[slurm]\npartition = 'idle'\nexclude = '-n01'\n", "a character that belongs to a shell"),
        ("[slurm]\npartition = 'idle'\ninterval_s = nan\n", "slurm.interval_s"),
        ("slurm = 3\n", "'slurm' must be a table"),
        ("[slurmy]\n", "unknown key 'slurmy'"),
        ("[slurm\n", "is not TOML"),
    ],
)
def test_invalid_files(monkeypatch, capsys, tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "site.toml"
    file.write_text(text)
    said = up(monkeypatch, capsys, "--config", str(file), "--state", str(tmp_path / "s"))
    assert says in said
    assert "site.toml" in said


def test_slurms_options_without_slurm(monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["offcut", "up", "--dry-run"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--dry-run is about Slurm" in capsys.readouterr().err
