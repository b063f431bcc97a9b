"""The JSON forms of problems and answers: one problem per document, or one per line.

Problems from outside are checked here, and only here: every fault is an InputError that names the line, the job and the
field. Problems that offcut builds itself are not checked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offcut.errors import InputError
from offcut.model import (
    Allocation,
    AllocationProblem,
    CostModel,
    JobRequest,
    NodeClass,
    Objective,
    QuotaGroup,
    ScalingCurve,
)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


#: A number of nodes. Ten million is more than any machine has, and still fits a row of the solver's table.
_Count = Annotated[int, Field(ge=0, le=10_000_000)]


class _Curve(_Strict):
    nodes: list[_Count]
    rate: list[float]


class _Job(_Strict):
    id: str = Field(min_length=1)
    curve: _Curve
    min_nodes: _Count = 1
    max_nodes: _Count | None = None
    sizes: list[_Count] | None = None
    current: _Count = 0
    weight: float = Field(1.0, ge=0)
    grow_cost_s: float = Field(0.0, ge=0)
    shrink_cost_s: float = Field(0.0, ge=0)
    priority: int = 0
    group: str | None = None
    locked: bool = False
    may_wait: bool = True
    min_run_s: float = Field(0.0, ge=0)
    ran_s: float = Field(0.0, ge=0)
    samples_left: float | None = Field(None, gt=0)
    deadline_s: float | None = None
    type_curves: dict[str, _Curve] = Field(default_factory=dict)
    mix_types: bool = False
    switch_price: float = Field(0.0, ge=0)
    migration_cost_s: float | None = Field(None, ge=0)


class _Group(_Strict):
    id: str = Field(min_length=1)
    max_nodes: _Count | None = None
    share: float | None = Field(None, gt=0)


class _Class(_Strict):
    id: str = Field(min_length=1)
    nodes: _Count
    type: str = ""
    switch: str = ""
    until_s: float | None = Field(None, gt=0)
    held_by: str | None = None


class _Problem(_Strict):
    nodes: Annotated[int, Field(ge=1, le=10_000_000)]
    horizon_s: float = Field(gt=0)
    jobs: list[_Job] = Field(min_length=1)
    cost_model: CostModel = "published"
    objective: Objective = "weighted"
    groups: list[_Group] = Field(default_factory=list)
    max_resizes: int | None = Field(None, ge=0)
    classes: list[_Class] = Field(default_factory=list)


def read(path: Path) -> Iterator[tuple[str, AllocationProblem]]:
    """Read the problems of a file.

    A file is one JSON document, or JSON Lines: one problem per line. A problem may be wrapped,
    `{"problem": {...}, ...}`; the other fields are then ignored.

    Args:
        path: the file.

    Yields:
        Each problem with its place in the file, for messages.

    Raises:
        InputError: the file cannot be read or a problem is wrong; it names the line, the job and the field.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}.", next_step="Check the path.") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not a text file (byte {error.start} is not UTF-8).",
            next_step="Give an allocation problem in JSON.",
        ) from None
    return read_text(text, str(path))


def read_text(text: str, where: str) -> Iterator[tuple[str, AllocationProblem]]:
    """Read the problems in a text, as `read` does.

    Args:
        text: one JSON document, or one per line.
        where: what messages call the text.

    Yields:
        Each problem with its place in the text, for messages.

    Raises:
        InputError: a problem is not valid; it names the line, the job and the field.
    """
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise InputError(f"{where}: empty.", next_step="Give an allocation problem in JSON.")
    if len(lines) == 1 or not _is_json(lines[0][1]):
        yield where, parse(text, where=where)
        return
    for i, line in lines:
        at = f"{where}, line {i}"
        yield at, parse(line, where=at)


def _is_json(line: str) -> bool:
    """Return True if the line is a whole JSON document."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def parse(text: str, *, where: str = "problem") -> AllocationProblem:
    """Read one problem from its JSON text.

    Args:
        text: a JSON object.
        where: what messages call the problem.

    Returns:
        The problem.

    Raises:
        InputError: the text is not JSON, or the problem is not valid.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        at = (
            f"line {error.lineno}, column {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else "nested too deep"
        )
        raise InputError(
            f"{where}: not JSON ({at}).", next_step="See `offcut allocate --help` for an example."
        ) from None
    if isinstance(data, dict) and isinstance(data.get("problem"), dict):
        data = data["problem"]
    return load(data, where=where)


def load(data: Any, *, where: str = "problem") -> AllocationProblem:
    """Read one problem from its JSON value.

    Args:
        data: the parsed JSON value.
        where: what messages call the problem.

    Returns:
        The problem.

    Raises:
        InputError: the problem is not valid; it names the job and the field.
    """
    if not isinstance(data, dict):
        raise InputError(f"{where}: a problem is a JSON object.", next_step='It starts with {"nodes": ..., "jobs": [')
    try:
        raw = _Problem.model_validate(data)
    except ValidationError as error:
        raise _sentence(error, data, where) from None
    jobs = tuple(_job(job, f"{where}: job '{job.id}'") for job in raw.jobs)
    problem = AllocationProblem(
        nodes=raw.nodes,
        horizon_s=raw.horizon_s,
        jobs=jobs,
        cost_model=raw.cost_model,
        objective=raw.objective,
        groups=tuple(QuotaGroup(**group.model_dump()) for group in raw.groups),
        max_resizes=raw.max_resizes,
        classes=tuple(NodeClass(**one.model_dump()) for one in raw.classes),
    )
    _check_names(problem, where)
    return problem


def _sentence(error: ValidationError, data: dict[str, Any], where: str) -> InputError:
    """Turn pydantic's first error into a sentence, with the job's id in place of its number."""
    first = error.errors(include_url=False)[0]
    path = list(first["loc"])
    who = ""
    if len(path) > 1 and path[0] in ("jobs", "groups", "classes") and isinstance(path[1], int):
        kind = {"jobs": "job", "groups": "group", "classes": "class"}[str(path[0])]
        item = data[str(path[0])][path[1]]
        name = item.get("id") if isinstance(item, dict) else None
        who = f"{kind} '{name}', " if isinstance(name, str) else f"{kind} number {path[1] + 1}, "
        path = path[2:]
    field = ".".join(map(str, path)) or "of the document"
    given = first.get("input")
    shown = f" (given: {json.dumps(given, default=str)[:60]})" if isinstance(given, str | int | float | None) else ""
    hint = (
        "This field is not known; check its spelling." if first["type"] == "extra_forbidden" else "Correct this field."
    )
    reason = {"missing": "missing", "extra_forbidden": "unknown"}.get(first["type"], first["msg"].lower() + shown)
    return InputError(f"{where}: {who}field {field}: {reason}.", next_step=hint)


def _curve(curve: _Curve, who: str, field: str) -> ScalingCurve:
    """Check a curve; messages name its job and field."""
    try:
        made = ScalingCurve(tuple(curve.nodes), tuple(curve.rate))
    except InputError as error:
        raise InputError(
            f"{who}, field {field}: {error.what.removeprefix('curve: ')}", next_step=error.next_step
        ) from None
    if made.max_nodes < 1:
        raise InputError(
            f"{who}, field {field}: it has no point beyond 0 nodes.", next_step="Give at least one size's rate."
        )
    return made


def _job(raw: _Job, who: str) -> JobRequest:
    """Check a job's sizes against its curve."""
    curve = _curve(raw.curve, who, "curve")
    top = curve.max_nodes
    sizes = None
    if raw.sizes is not None:
        for a, b in zip(raw.sizes, raw.sizes[1:], strict=False):
            if b <= a:
                raise InputError(f"{who}, field sizes: {b} follows {a}.", next_step="List each size once, increasing.")
        sizes = tuple(n for n in raw.sizes if n != 0)
        for n in sizes:
            if n > top:
                raise InputError(
                    f"{who}, field sizes: {n} lies outside the curve, whose last point is at {top} nodes.",
                    next_step="Extend the curve or drop the size.",
                )
            if n < raw.min_nodes or (raw.max_nodes is not None and n > raw.max_nodes):
                raise InputError(
                    f"{who}, field sizes: {n} lies outside min_nodes..max_nodes ({raw.min_nodes}..{raw.max_nodes}).",
                    next_step="Drop the size, or min_nodes and max_nodes: the list is enough.",
                )
    smallest = max(1, raw.min_nodes)
    largest = top if raw.max_nodes is None else raw.max_nodes
    if smallest > largest:
        raise InputError(
            f"{who}, field min_nodes: {smallest} is above max_nodes ({largest}).", next_step="Swap or correct them."
        )
    if smallest > top:
        raise InputError(
            f"{who}, field min_nodes: {smallest} lies outside the curve, whose last point is at {top} nodes.",
            next_step="Extend the curve or lower min_nodes.",
        )
    plain = raw.model_dump(exclude={"curve", "sizes", "min_nodes", "max_nodes", "type_curves"})
    return JobRequest(
        curve=curve,
        min_nodes=smallest,
        max_nodes=largest,
        sizes=sizes,
        type_curves=tuple((k, _curve(c, who, f"type_curves.{k}")) for k, c in raw.type_curves.items()),
        **plain,
    )


def _check_names(problem: AllocationProblem, where: str) -> None:
    """Check that ids are unique, references exist and node classes add up."""
    for kind, items in (("job", problem.jobs), ("group", problem.groups), ("class", problem.classes)):
        seen: set[str] = set()
        for item in items:
            if item.id in seen:
                raise InputError(f"{where}: the {kind} id '{item.id}' is used twice.", next_step="Ids are unique.")
            seen.add(item.id)
    groups = {group.id for group in problem.groups}
    jobs = {job.id: job for job in problem.jobs}
    for job in problem.jobs:
        if job.group is not None and job.group not in groups:
            raise InputError(
                f"{where}: job '{job.id}', field group: unknown group '{job.group}'.", next_step="Add it to groups."
            )
    if not problem.classes:
        return
    if (have := sum(one.nodes for one in problem.classes)) != problem.nodes:
        raise InputError(
            f"{where}: field classes: they have {have} nodes together, but nodes is {problem.nodes}.",
            next_step="Every node belongs to one class.",
        )
    holds = dict.fromkeys(jobs, 0)
    for one in problem.classes:
        if one.held_by is not None:
            if one.held_by not in jobs:
                raise InputError(
                    f"{where}: class '{one.id}', field held_by: unknown job '{one.held_by}'.",
                    next_step="Name a job of this problem, or leave it out.",
                )
            holds[one.held_by] += one.nodes
    for job in problem.jobs:
        if holds[job.id] != job.current:
            raise InputError(
                f"{where}: job '{job.id}', field current: {job.current}, but the classes it holds have {holds[job.id]} "
                "nodes.",
                next_step="Say with held_by which nodes the job holds.",
            )


def answer(allocation: Allocation) -> dict[str, Any]:
    """Return an allocation as a JSON value; an infinite bound becomes null.

    Args:
        allocation: the answer of a solver or a policy.
    """
    out: dict[str, Any] = {
        "nodes": allocation.nodes,
        "objective": allocation.objective,
        "bound": allocation.bound if math.isfinite(allocation.bound) else None,
        "proven": allocation.proven,
        "solve_ms": round(allocation.solve_ms, 4),
        "price": allocation.price,
    }
    if allocation.classes:
        out["classes"] = allocation.classes
    return out
