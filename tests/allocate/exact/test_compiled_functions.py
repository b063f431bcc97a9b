"""Compiled functions call compiled functions of their own file only (the reason stands in `relaxation`)."""

from __future__ import annotations

import ast
from pathlib import Path

import offcut

SOURCES = {
    path.stem: ast.parse(path.read_text()) for path in (Path(offcut.__file__).parent / "allocate/exact").glob("*.py")
}


def compiled(tree: ast.Module) -> list[ast.FunctionDef]:
    """Return the functions of a file that numba compiles."""
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any("njit" in ast.dump(item) for item in node.decorator_list)
    ]


def test_a_compiled_function_calls_no_compiled_function_of_another_file() -> None:
    names = {stem: {function.name for function in compiled(tree)} for stem, tree in SOURCES.items()}
    assert {"search", "fill_rows"} <= names["search"]
    for stem, tree in SOURCES.items():
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("offcut.allocate.exact.")
            for alias in node.names
            if alias.name in names[node.module.rpartition(".")[2]]
        }
        for function in compiled(tree):
            used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            assert not used & imported, f"{stem}.{function.name} calls {used & imported}"
