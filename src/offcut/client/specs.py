"""Makes the models that are submitted of files, dictionaries and keyword arguments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from offcut.errors import InputError
from offcut.wire.jobspec import JobSpec, check_files, parse_job, read_job_file, with_absolute_paths, with_env_file
from offcut.wire.sweepspec import SweepSpec, parse_sweep, read_sweep_file, with_checked_files


def job_spec(
    what: str | Path | JobSpec,
    arguments: Sequence[str],
    fields: dict[str, Any],
    *,
    workdir: str | Path | None = None,
    where: str = "submit",
) -> JobSpec:
    """Return the job to submit; its files are there, and paths in it are absolute.

    Args:
        what: a training script, a job file that ends in `.toml`, or the job itself.
        arguments: the script's own.
        fields: fields of the job, which take precedence over those of `what`.
        workdir: the script's working directory; None: the current one.
        where: what an error names as the place of the fields.

    Raises:
        InputError: a field or a file is not usable.
    """
    if isinstance(what, BaseModel) or Path(what).suffix == ".toml":
        if arguments:
            raise InputError(f"{what}: a job file has its own arguments.", next_step="Write them into its command.")
        if isinstance(what, JobSpec):
            base = check_files(with_absolute_paths(what, Path.cwd()), where=where)
        else:
            base = read_job_file(Path(str(what)))
        given = with_env_file(base).model_dump(exclude_unset=True, exclude_none=True)
        return parse_job(given | fields, where=where)
    script = Path(str(what))
    given = {
        "name": script.stem,
        **fields,
        "command": [str(script.absolute()), *map(str, arguments)],
        "workdir": str(Path(workdir or Path.cwd()).absolute()),
    }
    return with_env_file(check_files(parse_job(given, where=where), where=where))


def sweep_spec(what: str | Path | SweepSpec | dict[str, Any] | None, fields: dict[str, Any]) -> SweepSpec:
    """Return the sweep to submit; paths in it are absolute.

    Args:
        what: a sweep file, the sweep itself, or its fields; None: `fields` alone.
        fields: fields of the sweep, which take precedence over those of `what`.

    Raises:
        InputError: a field or a file is not usable.
    """
    if isinstance(what, str | Path):
        data = read_sweep_file(Path(what)).model_dump(exclude_unset=True, mode="json")
    else:
        data = dict(_plain(what)) if what is not None else {}
    data |= {name: _plain(value) for name, value in fields.items()}
    if isinstance(data.get("scheduler"), str):
        data["scheduler"] = {"name": data["scheduler"]}
    return with_checked_files(parse_sweep(data, where="sweep"), Path.cwd(), where="sweep: job")


def _plain(value: Any) -> Any:
    """Return models, also those in dictionaries, as plain data."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True, mode="json")
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value
