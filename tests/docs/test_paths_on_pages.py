"""The files and directories that the pages name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile")), *sorted((ROOT / "docs").glob("*.md"))]
PATH = re.compile(r"\b(?:src/offcut|tests|benchmarks|scripts|sites|examples|docs)/[\w./-]*\w")


#: What commands on the pages make.
MADE = ("docs/_build", "examples/session/digits.pt")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_of_the_repository_that_a_page_names_exists(page: Path) -> None:
    named = {path for path in PATH.findall(page.read_text()) if not path.startswith(MADE)}
    assert sorted(path for path in named if not (ROOT / path).exists()) == []
