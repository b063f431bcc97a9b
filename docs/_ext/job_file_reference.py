"""The directives `job-file-reference`, `site-file-reference` and `site-rules-reference`: every key of a file, from the
model that checks it."""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from offcut.cluster.slurm.site import SlurmSite
from offcut.cluster.slurm.site_rules import SiteRules
from offcut.wire.jobspec import CurveSpec, JobSpec

_NAMES = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    CurveSpec: "table",
    Path: "path",
}
#: How the constraints that pydantic knows read in a sentence.
_LIMITS = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}", "min_length": "not empty"}


class JobFileReference(SphinxDirective):
    """A table of the keys: type, default, meaning."""

    model: type[BaseModel] = JobSpec

    def run(self) -> list[nodes.Node]:
        self.env.note_dependency(__import__(self.model.__module__, fromlist=["_"]).__file__)
        return self.parse_text_to_nodes("\n".join(_table(self.model)))


class SiteFileReference(JobFileReference):
    model = SlurmSite


class SiteRulesReference(JobFileReference):
    model = SiteRules


def _table(model: type[BaseModel]) -> Iterator[str]:
    yield "| key | type | default | |"
    yield "|---|---|---|---|"
    for key, field in model.model_fields.items():
        if not field.description:
            raise ValueError(f"{model.__name__}.{key} has no description: its reference needs one")
        kind = ", ".join([_kind(field.annotation), *_limits(field)])
        yield f"| `{key}` | {kind} | {_default(field)} | {field.description} |"


def _kind(annotation: Any) -> str:
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _kind(inside[0])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_kind(part) for part in inside if part is not types.NoneType)
    if origin is typing.Literal:
        return " or ".join(f"`{json.dumps(value)}`" for value in inside)
    if origin in (list, tuple):
        return f"list of {_kind(inside[0])}s".replace("texts", "text")
    if origin is dict:
        return f"table of {_kind(inside[1])}"
    return _NAMES[annotation]


def _limits(field: FieldInfo) -> Iterator[str]:
    for item in field.metadata:
        for name, words in _LIMITS.items():
            value = getattr(item, name, None)
            if value is not None:
                yield words.format(f"{value:g}" if isinstance(value, float) else value)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default == sys.executable:
        return "the controller's"
    return "" if field.default in (None, "", {}, ()) else f"`{json.dumps(field.default, default=str)}`"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("job-file-reference", JobFileReference)
    app.add_directive("site-file-reference", SiteFileReference)
    app.add_directive("site-rules-reference", SiteRulesReference)
    return {"parallel_read_safe": True}
