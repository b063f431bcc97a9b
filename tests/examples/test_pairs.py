"""Plain examples and their elastic versions: few lines are added, and alone both print and save the same."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import example_pairs
import pytest
import torch
from example_pairs import EXAMPLES, PAIRS

NAMES = {pair.name: pair for pair in PAIRS}


def test_each_elastic_example_has_a_plain_twin_and_is_in_the_table() -> None:
    for kind in ("plain", "elastic"):
        assert {path.name for path in (EXAMPLES / kind).glob("*.py")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_few_lines_are_added(name: str) -> None:
    added = example_pairs.added_lines(NAMES[name])
    assert len(added) <= NAMES[name].added, "\n".join(added)


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    "name", [pytest.param(pair.name, marks=[pytest.mark.frameworks] if pair.framework else []) for pair in PAIRS]
)
@pytest.mark.usefixtures("one_thread")
def test_alone_both_print_and_save_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, saved = [], []
    for kind in ("plain", "elastic"):
        where = tmp_path / kind
        where.mkdir()
        monkeypatch.chdir(where)
        monkeypatch.setattr(sys, "argv", [name, *NAMES[name].short])
        runpy.run_path(str(EXAMPLES / kind / name), run_name="__main__")
        printed.append(capsys.readouterr().out)
        saved.append({path.name: torch.load(path, weights_only=True) for path in where.glob("*.pt")})
    assert printed[0] == printed[1] != ""
    assert saved[0].keys() == saved[1].keys()
    for file, tensors in saved[0].items():
        assert all(torch.equal(value, saved[1][file][key]) for key, value in tensors.items())
