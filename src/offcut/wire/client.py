"""The controller's API as the command line uses it, over the owner's UNIX socket."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

from offcut.errors import BusyError, InputError, OffcutError, UnreachableError
from offcut.wire.ownership import check_socket

#: Characters of a path that stay as they are; a quoted character (`%2F`) is not quoted again.
_SAFE = "/%:@!$&'()*+,;=~-._"


class Client:
    """Asks one controller; each call has a connection of its own, so that threads may share a client.

    Every call returns the answer's JSON, and raises what the controller raised, or UnreachableError.
    """

    def __init__(self, socket: Path, timeout_s: float = 30.0) -> None:
        self._socket = socket
        self._timeout_s = timeout_s
        check_socket(socket)

    def get(self, path: str, **parameters: Any) -> Any:
        return self._ask("GET", f"{path}?{urlencode(parameters)}" if parameters else path)

    def get_text(self, path: str) -> str:
        """Return an answer that is not JSON."""
        return self._answer("GET", path).decode()

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self._ask("POST", path, body or {})

    def patch(self, path: str, body: dict[str, Any]) -> Any:
        return self._ask("PATCH", path, body)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return json.loads(self._answer(method, path, body))

    def _answer(self, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        connection = _UnixConnection(self._socket, self._timeout_s)
        try:
            # A controller that finds the request too large answers before it has read it.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.request(
                    method,
                    quote(path, safe=f"{_SAFE}?"),
                    body=content,
                    headers={"Connection": "close"} | ({} if content is None else {"Content-Type": "application/json"}),
                )
            response = connection.getresponse()
            answer = response.read()
        except (OSError, HTTPException) as error:
            raise UnreachableError(
                f"No controller answers at {self._socket} ({error}).",
                next_step="Start one with: offcut up, or name its state directory with --state.",
            ) from None
        finally:
            connection.close()
        if response.status == 200:
            return answer
        raise _refusal(response.status, answer)

    def close(self) -> None:
        """Do nothing: no connection is kept."""

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("offcut", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _refusal(status: int, answer: bytes) -> OffcutError:
    if status == 503:
        return BusyError("The controller is answering as many commands as it may at once.", next_step="Try again.")
    text = answer.decode(errors="replace")
    try:
        body = json.loads(text)
    except ValueError:
        body = {}
    if isinstance(body, dict) and "error" in body:
        kind = InputError if status in (400, 413, 422) else OffcutError
        return kind(body["error"], next_step=body.get("next_step", ""))
    detail = body.get("detail", text[:200]) if isinstance(body, dict) else text[:200]
    return OffcutError(f"The controller answered {status}: {detail}")
