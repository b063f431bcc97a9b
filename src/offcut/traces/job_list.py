"""Job lists: malleable jobs to replay, with their scaling curves (our own JSON format).

`{"curves": {name: {"nodes": [...], "rate": [...]}}, "jobs": [{"id", "curve", "submit_s", "min_nodes", "max_nodes",
"samples", "grow_cost_s", "shrink_cost_s"}]}`; rates are samples/s of the whole job.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offcut.errors import InputError
from offcut.model import ScalingCurve
from offcut.traces.text_file import read_text, write_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """A malleable job of a list: it wants `samples` trained at any size from `min_nodes` to `max_nodes`.

    `submit_s` is on the clock of the windows that it is replayed with.
    """

    id: str
    curve_name: str
    curve: ScalingCurve
    submit_s: float
    min_nodes: int
    max_nodes: int
    samples: float
    grow_cost_s: float = 0.0
    shrink_cost_s: float = 0.0


class _Curve(BaseModel):
    model_config = ConfigDict(extra="forbid")
    nodes: tuple[int, ...]
    rate: tuple[float, ...]


class _Job(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    id: str = Field(min_length=1)
    curve: str
    submit_s: float
    min_nodes: int = Field(ge=1)
    max_nodes: int = Field(ge=1)
    samples: float = Field(gt=0)
    grow_cost_s: float = Field(default=0.0, ge=0)
    shrink_cost_s: float = Field(default=0.0, ge=0)


class _List(BaseModel):
    model_config = ConfigDict(extra="forbid")
    curves: dict[str, _Curve]
    jobs: list[_Job]


def read_job_list(path: str | Path) -> tuple[ListedJob, ...]:
    """Read a job list, gzipped or not, in the file's order.

    Raises:
        InputError: the list is not valid; it names the file, the job and the field.
    """
    try:
        document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}).", next_step="Correct it.") from None
    try:
        content = _List.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the document"
        raise InputError(
            f"{path}, field {field}: {first['msg']}.", next_step="See docs/traces.md for the format."
        ) from None
    curves: dict[str, ScalingCurve] = {}
    for name, curve in content.curves.items():
        try:
            curves[name] = ScalingCurve(curve.nodes, curve.rate)
        except InputError as error:
            raise InputError(f"{path}, field curves.{name}: {error.what}", next_step=error.next_step) from None
    seen: set[str] = set()
    for i, job in enumerate(content.jobs):
        _check(job, f"{path}, field jobs.{i}", curves, seen)
    return tuple(
        ListedJob(
            id=job.id,
            curve_name=job.curve,
            curve=curves[job.curve],
            submit_s=job.submit_s,
            min_nodes=job.min_nodes,
            max_nodes=job.max_nodes,
            samples=job.samples,
            grow_cost_s=job.grow_cost_s,
            shrink_cost_s=job.shrink_cost_s,
        )
        for job in content.jobs
    )


def _check(job: _Job, where: str, curves: dict[str, ScalingCurve], seen: set[str]) -> None:
    """Check a job against the list: its curve exists and is long enough, and its id is unique."""
    if job.curve not in curves:
        raise InputError(
            f"{where}.curve: job {job.id} names the curve '{job.curve}', which is not in the list.",
            next_step=f"The list has {', '.join(sorted(curves)) or 'no curves'}.",
        )
    if job.min_nodes > job.max_nodes:
        raise InputError(
            f"{where}.min_nodes: job {job.id} wants at least {job.min_nodes} and at most {job.max_nodes} nodes.",
            next_step="Write the smaller number first.",
        )
    if job.max_nodes > curves[job.curve].max_nodes:
        raise InputError(
            f"{where}.max_nodes: job {job.id} may have {job.max_nodes} nodes, but its curve ends at "
            f"{curves[job.curve].max_nodes}.",
            next_step="Extend the curve or lower max_nodes.",
        )
    if job.id in seen:
        raise InputError(f"{where}.id: the id {job.id} is used twice.", next_step="Give each job its own id.")
    seen.add(job.id)


def write_job_list(path: str | Path, jobs: Iterable[ListedJob]) -> None:
    """Write `jobs`, gzipped if the name ends in `.gz`; raises InputError if two curves have one name."""
    curves: dict[str, ScalingCurve] = {}
    rows: list[dict[str, object]] = []
    for job in jobs:
        if curves.setdefault(job.curve_name, job.curve) != job.curve:
            raise InputError(f"job list: two curves are named '{job.curve_name}'.", next_step="Rename one.")
        row = _Job(
            id=job.id,
            curve=job.curve_name,
            submit_s=job.submit_s,
            min_nodes=job.min_nodes,
            max_nodes=job.max_nodes,
            samples=job.samples,
            grow_cost_s=job.grow_cost_s,
            shrink_cost_s=job.shrink_cost_s,
        )
        rows.append(row.model_dump())
    document = {
        "curves": {name: {"nodes": curve.nodes, "rate": curve.rate} for name, curve in curves.items()},
        "jobs": rows,
    }
    write_text(path, json.dumps(document) + "\n")
