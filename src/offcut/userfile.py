"""Loads functions from a user's Python file, such as an allocation policy or a curve model."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from offcut.errors import InputError


def load_function(name: str, *, what: str, default: str, example: str, built_in: Iterable[str]) -> Callable[..., Any]:
    """Load the function that `FILE.py:FUNCTION` names.

    Args:
        name: `FILE.py:FUNCTION`, or `FILE.py` for the function called `default`.
        what: what the function is (a policy, say), for messages.
        default: the function's name if `name` has none.
        example: a definition to show if the file has no such function.
        built_in: the names of the built-in functions, for messages.

    Raises:
        InputError: `name` is not a Python file, the file is not found, its import fails, or it has no such function.
    """
    path, _, function = name.partition(":")
    if not path.endswith(".py"):
        raise InputError(f"unknown {what} '{name}'.", next_step=f"Choose {', '.join(built_in)}, or FILE.py:FUNCTION.")
    if not Path(path).is_file():
        raise InputError(f"{what} file {path}: not found.", next_step="Check the path.")
    spec = importlib.util.spec_from_file_location(f"offcut_user_{what}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{what} file {path}: cannot be loaded.", next_step="Give a Python file.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"{what} file {path}: {type(error).__name__}: {error}.", next_step="Correct the file."
        ) from error
    found: Any = getattr(module, function or default, None)
    if not callable(found):
        raise InputError(
            f"{what} file {path}: it has no function '{function or default}'.", next_step=f"Define it: {example}"
        )
    loaded: Callable[..., Any] = found
    return loaded
