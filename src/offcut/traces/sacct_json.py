"""Slurm's accounting as JSON: `sacct -a --json`, from Slurm 21.08 (data parser 0.0.37) on.

Older versions write plain numbers where newer ones write `{"set": true, "infinite": false, "number": 60}`; both are
read. Time limits are minutes, stamps seconds since 1970, 0 where unknown.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from offcut.errors import InputError
from offcut.traces.batch_log import BatchLog
from offcut.traces.hostlist import expand_hosts
from offcut.traces.slurm_record import SlurmRecord, log_of_records
from offcut.traces.text_file import read_text


class _Times(BaseModel):
    submission: float | None
    start: float | None
    end: float | None
    limit: float | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return None if value.get("infinite") or not value.get("set", True) else value.get("number")
        return value


class _Job(BaseModel):
    model_config = ConfigDict(extra="ignore")

    job_id: int
    nodes: str | None = ""
    allocation_nodes: int | None = 0
    time: _Times


class _Dump(BaseModel):
    jobs: list[_Job] = Field()


def read_sacct_json(path: str | Path) -> BatchLog:
    """Read `sacct --json`, gzipped or not.

    Raises:
        InputError: the file is not valid; it names the file and the field.
    """
    try:
        document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}, line {error.lineno}: not JSON ({error.msg}).", next_step="Take it with: sacct -a --json"
        ) from None
    try:
        dump = _Dump.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path}, field {field}: {first['msg']}.", next_step="Take it with: sacct -a --json") from None
    return log_of_records(str(path), [_record(job, f"{path}, jobs.{i}") for i, job in enumerate(dump.jobs)])


def _record(job: _Job, where: str) -> SlurmRecord:
    listed = job.nodes or ""
    try:
        hosts = expand_hosts(listed) if listed not in ("", "None assigned", "Unknown") else ()
    except InputError as error:
        raise InputError(f"{where}, field nodes: {error.what}", next_step=error.next_step) from None
    return SlurmRecord(
        id=str(job.job_id),
        submit_s=job.time.submission or None,
        start_s=job.time.start or None,
        end_s=job.time.end or None,
        requested_s=None if job.time.limit is None else job.time.limit * 60,
        nodes=job.allocation_nodes or 0,
        hosts=hosts,
        where=where,
    )
