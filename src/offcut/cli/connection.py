"""The connection of a command to the controller."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from offcut.wire.client import Client


def connect(state: Path | None) -> Client:
    """Return a client of the controller whose state directory is `state`; None: the default directory."""
    from offcut.service.paths import StatePaths, default_state_dir

    return Client(StatePaths(state or default_state_dir()).socket)


def job_path(job: str, *rest: str) -> str:
    """Return the API path of a job, or of a resource below it; any character of the job's name is quoted."""
    # Dots are quoted too: an HTTP client would resolve `..` as a step up.
    return "/".join(("/v1/jobs", quote(job, safe="").replace(".", "%2E"), *rest))
