"""Docstrings: a function's begins with a verb, and public functions of several parameters describe them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "offcut"
#: Words with which no sentence begins that says what a function does.
NOT_VERBS = {
    *("A", "All", "An", "As", "At", "By", "Each", "Every", "Everything", "For", "How"),
    *("If", "In", "It", "Its", "None", "Nothing", "Of", "On", "One", "The", "There"),
    *("These", "They", "This", "Those", "Until", "What", "When", "Where", "Whether", "Which", "Who"),
    *("Why", "While", "With"),
}
#: Where public functions have a section `Args`: these packages, and the modules that a training script imports.
DOCUMENTED = ("advisor", "allocate", "cluster/base.py", "pipeline", "search", "simulate")
DOCUMENTED_OF_TORCH = ("torch/*.py", "torch/pipeline/session.py")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def decorators(function: Function) -> set[str]:
    """Return the last names of the function's decorators."""
    found = (item.func if isinstance(item, ast.Call) else item for item in function.decorator_list)
    return {item.attr if isinstance(item, ast.Attribute) else getattr(item, "id", "") for item in found}


def public_functions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Yield the public functions and the public methods of public classes, with their names."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body, f"{node.name}.")
        elif isinstance(node, Function) and not node.name.startswith("_"):
            yield prefix + node.name, node


def parameters(function: Function) -> list[str]:
    """Return the names of the function's parameters, without `self` and `cls`."""
    arguments = function.args
    names = [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls")]


def documented_files() -> list[Path]:
    """Return the files of `DOCUMENTED` and `DOCUMENTED_OF_TORCH`."""
    files = [path for pattern in DOCUMENTED_OF_TORCH for path in SOURCE.glob(pattern)]
    for name in DOCUMENTED:
        path = SOURCE / name
        files += [path] if path.is_file() else path.rglob("*.py")
    return sorted(files)


def undescribed(function: Function) -> list[str]:
    """Return the parameters that the section `Args` of the docstring does not name."""
    _, _, section = (ast.get_docstring(function) or "").partition("Args:\n")
    lines = section.partition("\n\n")[0].splitlines()
    return [name for name in parameters(function) if not any(line.strip().startswith(f"{name}:") for line in lines)]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_docstring_of_a_function_begins_with_a_verb(path: Path) -> None:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, Function) and not decorators(node) & {"property", "cached_property"}:
            text = ast.get_docstring(node)
            if text and text.split()[0].rstrip(",:") in NOT_VERBS:
                found.append(f"{node.name}, line {node.lineno}: {text.splitlines()[0]}")
    assert found == []


def test_public_functions_of_several_parameters_describe_them() -> None:
    functions = [
        (path, name, node)
        for path in documented_files()
        for name, node in public_functions(ast.parse(path.read_text()).body)
        if len(parameters(node)) > 1
    ]
    assert len(functions) > 100
    # A method may be described in the Protocol that its class implements; compiled functions are called by one another.
    described = {name.rpartition(".")[2] for _, name, node in functions if "." in name and not undescribed(node)}
    missing = [
        f"{path.relative_to(SOURCE)}: {name}: {', '.join(undescribed(node))}"
        for path, name, node in functions
        if undescribed(node)
        and "njit" not in decorators(node)
        and not (ast.get_docstring(node) is None and name.rpartition(".")[2] in described)
    ]
    assert missing == []
