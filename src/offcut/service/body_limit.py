"""ASGI middleware that refuses a request with a body that is too large, before the request is handled."""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Answers 413 to a body that is, or turns out to be, larger than `most_bytes`. It never holds more than that."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        body = b"" if int(announced) > self._most_bytes else await self._read(receive)
        if body is None or int(announced) > self._most_bytes:
            answer = JSONResponse(
                {
                    "error": f"The request is larger than {self._most_bytes >> 20} MiB.",
                    "next_step": "Put large data into files, and name them in the job.",
                },
                status_code=413,
                headers={"Connection": "close"},
            )
            await answer(scope, receive, send)
            return
        whole: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def replay() -> Message:
            nonlocal whole
            if whole is not None:
                first, whole = whole, None
                return first
            return await receive()

        await self._app(scope, replay, send)

    async def _read(self, receive: Receive) -> bytes | None:
        """Return the whole body; None if it is too large.

        A peer that disconnects ends its body early, and gets no answer.
        """
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self._most_bytes:
                return None
            if message["type"] != "http.request" or not message.get("more_body", False):
                return bytes(body)
