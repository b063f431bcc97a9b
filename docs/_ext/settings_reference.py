"""The directive `settings-reference`: every field of the controller's settings, from the class and its comments."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

from offcut.control import Settings

_NAMES = {str: "text", int: "whole number", float: "number", bool: "true or false"}
#: The end of a field's name to the unit of its value.
_UNITS = {"_s": "s", "_bytes": "bytes"}


class SettingsReference(SphinxDirective):
    """A table of the settings: type, unit, default, meaning."""

    def run(self) -> list[nodes.Node]:
        analyzer = ModuleAnalyzer.for_module(Settings.__module__)
        self.env.note_dependency(analyzer.srcname)
        return self.parse_text_to_nodes("\n".join(table()))


def table() -> Iterator[str]:
    """Yield the lines of the table, in Markdown.

    Raises:
        ValueError: a setting has no comment that begins with `#:`.
    """
    comments = ModuleAnalyzer.for_module(Settings.__module__).find_attr_docs()
    hints = typing.get_type_hints(Settings)
    yield "| setting | type | unit | default | |"
    yield "|---|---|---|---|---|"
    for field in fields(Settings):
        lines = comments.get((Settings.__name__, field.name))
        if not lines:
            raise ValueError(f"Settings.{field.name} has no comment `#:` before it: the reference needs one")
        unit = next((unit for end, unit in _UNITS.items() if field.name.endswith(end)), "")
        default = "" if field.default is None else f"`{str(field.default).lower()}`"
        meaning = re.sub(r"\s+", " ", " ".join(lines)).strip()
        yield f"| `{field.name}` | {_kind(hints[field.name])} | {unit} | {default} | {meaning} |"


def _kind(annotation: Any) -> str:
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_kind(part) for part in inside if part is not types.NoneType)
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in inside)
    return _NAMES[annotation]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("settings-reference", SettingsReference)
    return {"parallel_read_safe": True}
