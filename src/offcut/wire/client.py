"""The controller's API as the command line uses it, over the owner's UNIX socket."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from offcut.errors import InputError, OffcutError, UnreachableError
from offcut.wire.ownership import check_socket


class Client:
    """One connection.

    Every call returns the answer's JSON, and raises what the controller raised, or UnreachableError.
    """

    def __init__(self, socket: Path, timeout_s: float = 30.0) -> None:
        self._socket = socket
        check_socket(socket)
        self._http = httpx.Client(
            transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://offcut", timeout=timeout_s
        )

    def get(self, path: str, **parameters: Any) -> Any:
        return self._ask("GET", path, params=parameters)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._ask("POST", path, json=body or {})

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        return self._ask("PATCH", path, json=body)

    def _ask(self, method: str, path: str, **content: Any) -> Any:
        try:
            response = self._http.request(method, path, **content)
        except httpx.TransportError as error:
            raise UnreachableError(
                f"No controller answers at {self._socket} ({error}).",
                next_step="Start one with: offcut up, or name its state directory with --state.",
            ) from None
        if response.status_code == 200:
            return response.json()
        raise _refusal(response)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _refusal(response: httpx.Response) -> OffcutError:
    if response.status_code == 503:
        return OffcutError("The controller is answering as many commands as it may at once.", next_step="Try again.")
    try:
        body = response.json()
    except ValueError:
        body = {}
    if "error" in body:
        kind = InputError if response.status_code in (400, 413, 422) else OffcutError
        return kind(body["error"], next_step=body.get("next_step", ""))
    detail = body.get("detail", response.text[:200])
    return OffcutError(f"The controller answered {response.status_code}: {detail}")
