"""The page of examples shows the differences that git sees."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from example_pairs import PAIRS, Pair, added_lines

PAGES = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def directive() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_pairs_directive", PAGES / "_ext" / "example_pairs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_the_page_shows_the_lines_that_are_added(directive: ModuleType, pair: Pair) -> None:
    lines = list(directive.section(pair.name))
    assert lines[0] == f"## {pair.name}"
    assert lines[2], "a script begins with a docstring"
    shown = [line for line in lines if line.startswith("+") and line[1:].strip()]
    assert sorted(shown) == sorted(added_lines(pair))
    number = f"adds {len(shown)} line"
    assert any(number in line for line in lines)


def test_every_pair_has_a_section(directive: ModuleType) -> None:
    assert sorted(directive.names()) == sorted(pair.name for pair in PAIRS)


def test_a_change_of_indentation_alone_is_not_shown(directive: ModuleType) -> None:
    assert list(directive.difference(["a", "b"], ["if x:", "    a", "    b"])) == ["+if x:", "     a", "     b"]
