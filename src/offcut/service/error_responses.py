"""Error responses of the API: `{"error": ..., "next_step": ...}`, whatever was wrong with a request."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from offcut.errors import OffcutError
from offcut.plaintext import visible
from offcut.wire.fields import fault


def install_handlers(app: FastAPI) -> None:
    """Answer an OffcutError with 400 where the caller is at fault, else 500; a request that cannot be read with 422."""

    @app.exception_handler(OffcutError)
    async def _refuse(_: Request, error: OffcutError) -> JSONResponse:
        return _answer(400 if error.exit_code == 2 else 500, error.what, error.next_step)

    @app.exception_handler(HTTPException)
    async def _unknown(_: Request, error: HTTPException) -> JSONResponse:
        return _answer(error.status_code, f"{error.detail}.", "")

    @app.exception_handler(RequestValidationError)
    async def _unreadable(_: Request, error: RequestValidationError) -> JSONResponse:
        # FastAPI's own answer repeats the input, and fails if that cannot be JSON: NaN, or half a character.
        inner = [{**item, "loc": item["loc"][1:]} for item in error.errors()]
        return _answer(422, f"The request cannot be used: {fault(inner)}", "")


def _answer(code: int, what: str, next_step: str) -> JSONResponse:
    return JSONResponse({"error": visible(what), "next_step": visible(next_step)}, status_code=code)
