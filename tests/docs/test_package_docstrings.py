"""The list of files in a package's docstring is complete, and names nothing that is not there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"


def lists(package: Path) -> list[str]:
    """Return the items of the list in the docstring of `package/__init__.py`, each in one line."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    paragraphs = [part for part in text.split("\n\n") if part.startswith("- `")]
    return [item.replace("\n", " ") for part in paragraphs for item in part.removeprefix("- ").split("\n- ")]


def modules(package: Path) -> set[str]:
    """Return the names of a package's modules and sub-packages; programs (`__main__`) are not among them."""
    files = {path.stem for path in package.glob("*.py") if not path.stem.startswith("_")}
    return files | {path.parent.name for path in package.glob("*/__init__.py")}


PACKAGES = sorted(path.parent for path in SOURCE.glob("offcut/**/__init__.py") if lists(path.parent))


def test_packages_with_lists_are_found() -> None:
    names = {str(package.relative_to(SOURCE)) for package in PACKAGES}
    assert {"offcut", "offcut/control", "offcut/torch/step"} <= names


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(SOURCE)))
def test_the_list_of_a_package_is_its_directory(package: Path) -> None:
    items = lists(package)
    mentioned = {name for item in items for name in re.findall(r"`(\w+)`", item)}
    # An item begins with names and a colon; after a semicolon there may be more of them.
    headed = [head for item in items for head in re.findall(r"(?:^|; )((?:`\w+`(?:, | and )?)+):", item)]
    listed = {name for head in headed for name in re.findall(r"`(\w+)`", head)}
    assert sorted(modules(package) - mentioned) == [], "not in the docstring"
    assert sorted(listed - modules(package)) == [], "not in the directory"
