"""The sources keep to the layout that docs/architecture.md describes."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
LONGEST_FILE_LINES = 400


@pytest.fixture(scope="module")
def packages() -> set[str]:
    """Every package and module directly below `offcut`."""
    found = (
        path for path in (ROOT / "src/offcut").iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    )
    return {path.stem for path in found if not path.stem.startswith("__")}


def contracts() -> dict[str, dict]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return {contract["name"]: contract for contract in table["contracts"]}


def below_offcut(modules: list[str]) -> set[str]:
    return {module.removeprefix("offcut.") for module in modules if module.startswith("offcut.")}


def test_the_layers_must_list_every_package(packages: set[str]) -> None:
    layers = contracts()["A package imports only from packages to its left"]
    assert layers["exhaustive"]
    listed = {word for layer in layers["layers"] for word in layer.replace("|", " ").split()}
    assert packages - listed == {"torch"}
    optional = {word.strip("()") for word in listed if word.startswith("(")}
    assert listed - packages <= {f"({word})" for word in optional}, "a layer names a package that does not exist"


def test_no_package_but_torch_may_import_torch(packages: set[str]) -> None:
    contract = contracts()["Only offcut.torch imports torch; all other packages start it as a process"]
    assert below_offcut(contract["source_modules"]) == packages - {"torch"}


def test_torch_imports_only_what_its_contract_names(packages: set[str]) -> None:
    name = "offcut.torch imports errors, model, wire, process, membership and pipeline only"
    allowed = {"errors", "model", "wire", "process", "membership", "pipeline"}
    assert below_offcut(contracts()[name]["forbidden_modules"]) == packages - allowed - {"torch"}


def cycles(graph: grimp.ImportGraph) -> Iterator[list[str]]:
    """Yield every set of modules that import each other in a circle: Tarjan's strongly connected components."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> Iterator[list[str]]:
        index[module] = low[module] = len(index)
        stack.append(module)
        for imported in sorted(graph.find_modules_directly_imported_by(module)):
            if imported not in index:
                yield from visit(imported)
            if imported in stack:
                low[module] = min(low[module], low[imported])
        if low[module] == index[module]:
            component = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(component) > 1:
                yield component

    for module in sorted(graph.modules):
        if module not in index:
            yield from visit(module)


def test_modules_import_each_other_in_no_circle_even_inside_functions() -> None:
    assert [sorted(component) for component in cycles(grimp.build_graph("offcut", cache_dir=None))] == []


def test_a_circle_is_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in ("ab", "bc", "cb", "cd"):
        graph.add_import(importer=importer, imported=imported)
    assert [sorted(component) for component in cycles(graph)] == [["b", "c"]]


def test_no_source_file_is_longer_than_the_limit() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in (ROOT / "src").rglob("*.py")}
    assert {str(path): lines for path, lines in lengths.items() if lines > LONGEST_FILE_LINES} == {}
