"""Plain examples and their elastic versions: few lines are added, and alone both train the same model, bit for bit."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: The most lines that are added, by pair.
ADDED = {"digits.py": 6}


def test_each_elastic_example_has_a_plain_twin() -> None:
    for kind in ("plain", "elastic"):
        assert {path.name for path in (EXAMPLES / kind).glob("*.py")} == set(ADDED)


@pytest.mark.parametrize("name", ADDED)
def test_few_lines_are_added(name: str) -> None:
    pair = [EXAMPLES / kind / name for kind in ("plain", "elastic")]
    shown = subprocess.run(["git", "diff", "--no-index", "-w", *pair], capture_output=True, text=True, check=False)
    added = [line for line in shown.stdout.splitlines() if line.startswith("+") and line[1:].strip()]
    assert len(added) - len(["+++ the file"]) <= ADDED[name], shown.stdout


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.usefixtures("one_thread")
def test_alone_both_train_the_same_model(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = []
    for kind in ("plain", "elastic"):
        out = tmp_path / f"{kind}.pt"
        monkeypatch.setattr(sys, "argv", [name, "--epochs", "2", "--out", str(out)])
        runpy.run_path(str(EXAMPLES / kind / name), run_name="__main__")
        saved.append(torch.load(out, weights_only=True))
    assert saved[0].keys() == saved[1].keys()
    assert all(torch.equal(value, saved[1][key]) for key, value in saved[0].items())
