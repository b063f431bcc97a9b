"""The controller's configuration file: TOML, a table `[settings]` with the fields of `control.Settings`, and a table
`[slurm]` with those of `cluster.slurm.site.SlurmSite`."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from offcut.advisor import load
from offcut.cluster.slurm.site import SlurmSite, make_site
from offcut.control import Settings
from offcut.errors import InputError

_TABLES = {"settings", "slurm"}
_SETTINGS: TypeAdapter[Settings] = TypeAdapter(Settings)


def read_settings(path: Path | None, **given: Any) -> Settings:
    """Return the settings from a file, overridden by what is `given` and not None. InputError names file and field."""
    values = _table(path, "settings") if path is not None else {}
    values |= {name: value for name, value in given.items() if value is not None}
    where = str(path) if path is not None else "options"
    known = {field.name for field in fields(Settings)}
    for name, value in values.items():
        if name not in known:
            raise InputError(
                f"{where}: unknown key 'settings.{name}'.", next_step=f"Known keys: {', '.join(sorted(known))}."
            )
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0:
            raise InputError(f"{where}: settings.{name}: {value} is negative.", next_step="Durations are at least 0.")
    try:
        settings = _SETTINGS.validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise InputError(f"{where}: settings.{field}: {first['msg']} (given: {first['input']!r}).") from None
    try:
        load(settings.profiler)
    except InputError as error:
        raise InputError(f"{where}: settings.profiler: {error.what}", next_step=error.next_step) from None
    if settings.solve_limit_s <= 0:
        raise InputError(f"{where}: settings.solve_limit_s: {settings.solve_limit_s} is not positive.")
    if settings.horizon_s <= 0:
        raise InputError(f"{where}: settings.horizon_s: {settings.horizon_s} is not positive.")
    return settings


def read_slurm_site(path: Path | None, **given: Any) -> SlurmSite:
    """Return the site from a file's table `[slurm]`, overridden as above. InputError names file and field."""
    values = _table(path, "slurm") if path is not None else {}
    values |= {name: value for name, value in given.items() if value is not None}
    return make_site(values, str(path) if path is not None else "options")


def _table(path: Path, name: str) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.", next_step="Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}.") from None
    unknown = sorted(set(data) - _TABLES)
    if unknown:
        raise InputError(f"{path}: unknown key '{unknown[0]}'.", next_step="The file has tables [settings], [slurm].")
    table = data.get(name, {})
    if not isinstance(table, dict):
        raise InputError(f"{path}: '{name}' must be a table.", next_step=f"Write [{name}] and fields below it.")
    return table
