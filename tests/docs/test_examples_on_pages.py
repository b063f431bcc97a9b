"""The code that the pages show works as it is shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from offcut.testing import PolicyConformance

PAGES = Path(__file__).resolve().parents[2] / "docs"


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_policy_on_the_page_passes_the_suite_for_policies() -> None:
    names: dict[str, Any] = {}
    exec(python_blocks("add-a-policy.md")[0], names)
    PolicyConformance().test_answers_are_legal_repeatable_and_never_above_the_optimum(names["allocate"])
