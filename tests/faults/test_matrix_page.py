"""The page shows the matrix that is tested."""

from __future__ import annotations

from pathlib import Path

from faults.matrix import table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"


def test_the_table_on_the_page_is_the_matrix() -> None:
    shown = PAGE.read_text().partition("<!-- made by tests/faults/matrix.py -->")[2].partition("<!-- end -->")[0]
    assert shown.strip() == table(), "put the output of `python tests/faults/matrix.py` there"
