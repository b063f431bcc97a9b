"""Shared by the benchmarks: the machine and versions of a measurement, and the place of the reference data."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from offcut import __version__


def made_with(*packages: str, **more: Any) -> dict[str, Any]:
    """The machine, its load now, and the versions of Python, offcut and `packages` (None: not installed)."""
    versions: dict[str, str | None] = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "machine": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "offcut": __version__,
        **versions,
        **more,
    }


def _processor() -> str:
    """As far as the system says."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def shared() -> Path:
    """Return $OFFCUT_SHARED, or the folder `shared` next to the repository."""
    return Path(os.environ.get("OFFCUT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
