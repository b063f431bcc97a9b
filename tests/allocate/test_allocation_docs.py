"""The examples on the pages about allocation and policies have the results that the pages show."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from offcut.allocate import exact, json_format, milp, policy

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_problems_on_the_page_are_solved_as_shown() -> None:
    first, general = blocks("allocation.md", "json")
    answer = exact.solve(json_format.parse(first))
    shown = json.loads(re.search(r"^\{\"nodes\": \{.*$", (DOCS / "allocation.md").read_text(), re.MULTILINE)[0])  # type: ignore[index]
    assert answer.nodes == shown["nodes"]
    assert answer.objective == pytest.approx(shown["objective"])
    assert answer.price == pytest.approx(shown["price"])
    assert milp.solve(json_format.parse(general)).proven


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(test_\w+)`", (DOCS / "allocation.md").read_text())
    tests = (Path(__file__).parent / "test_milp.py").read_text()
    assert len(named) == 9
    assert all(f"def {name}(" in tests for name in named)


def test_the_policy_on_the_page_decides(tmp_path: Path) -> None:
    path = tmp_path / "my_policy.py"
    path.write_text(blocks("add-a-policy.md", "python")[0])
    asked = json_format.parse(blocks("allocation.md", "json")[0])
    assert policy.decide(policy.load(str(path)), asked).nodes == {"a": 1, "b": 1}


def test_every_policy_is_on_the_page() -> None:
    named = re.findall(r"^\| `([a-z-]+)` \|", (DOCS / "add-a-policy.md").read_text(), re.MULTILINE)
    assert named == list(policy.BUILT_IN)
