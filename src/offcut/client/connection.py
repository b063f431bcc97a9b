"""Requests to the API of one controller, and waiting while it is restarted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from offcut.errors import UnreachableError
from offcut.wire.client import Client

#: A controller that does not answer is asked again after this.
_AGAIN_S = 1.0


def say_nothing(words: str) -> None:
    """Do nothing with a remark."""


class Connection:
    """The API of one controller. `say` gets the remarks of calls that wait for it."""

    def __init__(self, client: Client, say: Callable[[str], None] = say_nothing) -> None:
        self._client = client
        self._say = say

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the answer's JSON; raise what the controller raised, or UnreachableError."""
        return self._client.get(path, **parameters)

    def get_text(self, path: str) -> str:
        """Return an answer that is text; raise what the controller raised, or UnreachableError."""
        return self._client.get_text(path)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the answer's JSON; raise what the controller raised, or UnreachableError."""
        return self._client.post(path, body)

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        """Return the answer's JSON; raise what the controller raised, or UnreachableError."""
        return self._client.patch(path, body)

    def get_patiently(self, path: str, until_s: float = float("inf")) -> Any:
        """Return the answer's JSON; see `ask_again`."""
        return self.ask_again(lambda: self._client.get(path), until_s)

    def ask_again(self, question: Callable[[], Any], until_s: float = float("inf")) -> Any:
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
                    self._say(
                        "The controller does not answer: waiting until it does. Ctrl-C ends this command, not the job."
                    )
                silent = True
                time.sleep(_AGAIN_S)
            else:
                if silent:
                    self._say("The controller answers again.")
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
