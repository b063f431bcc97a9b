"""The layers on the pages are the ones of the import contract, and the tests mirror the sources."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Tests that are not about one package.
BESIDE = {"browser", "conformance", "docs", "e2e", "examples", "faults", "torch/idioms"}


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_the_layers_are_the_contracts(page: str) -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [set(re.findall(r"\w+", layer)) for layer in reversed(contract["layers"])]
    (shown,) = re.findall(r"`(errors ◄[^`]*)`", (ROOT / page).read_text())
    assert [set(re.findall(r"\w+", layer)) for layer in shown.split("◄")] == layers


def test_every_directory_of_tests_is_named_like_a_package() -> None:
    tests = {str(path.parent.relative_to(ROOT / "tests")) for path in (ROOT / "tests").glob("**/test_*.py")}
    astray = {name for name in tests - BESIDE if not (ROOT / "src" / "offcut" / name / "__init__.py").exists()}
    assert astray == set()
