"""The connection of a command to the controller."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from offcut.cli.output import remark
from offcut.errors import UnreachableError
from offcut.wire.client import Client

#: A controller that does not answer is asked again after this.
_AGAIN_S = 1.0


def connect(state: Path | None) -> Client:
    """Return a client of the controller whose state directory is `state`; None: the default directory."""
    from offcut.service.paths import StatePaths, default_state_dir

    return Client(StatePaths(state or default_state_dir()).socket)


def ask_again(question: Callable[[], Any], until_s: float = float("inf")) -> Any:
    """Return the controller's answer; while it does not answer (it is being restarted), ask again.

    Args:
        question: asks the controller.
        until_s: after this instant of `time.monotonic` it is not asked again.

    Raises:
        UnreachableError: The controller did not answer in time.
    """
    silent = False
    while True:
        try:
            answer = question()
        except UnreachableError:
            if time.monotonic() + _AGAIN_S > until_s:
                raise
            if not silent:
                remark("The controller does not answer: waiting until it does. Ctrl-C ends this command, not the job.")
            silent = True
            time.sleep(_AGAIN_S)
        else:
            if silent:
                remark("The controller answers again.")
            return answer


def job_path(job: str, *rest: str) -> str:
    """Return the API path of a job, or of a resource below it; any character of the job's name is quoted."""
    return "/".join(("/v1/jobs", _quoted(job), *rest))


def sweep_path(sweep: str, *rest: str) -> str:
    """Return the API path of a sweep, or of a resource below it."""
    return "/".join(("/v1/sweeps", _quoted(sweep), *rest))


def _quoted(name: str) -> str:
    # Dots are quoted too: an HTTP client would resolve `..` as a step up.
    return quote(name, safe="", errors="replace").replace(".", "%2E")
