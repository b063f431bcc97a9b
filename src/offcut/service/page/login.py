"""Lets in only who shows the token: in the address once, then as a cookie; programs show it as a bearer token."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from offcut.service.page.rendering import render
from offcut.service.page.token_file import PageKey, expiry

_REFUSED = "This page needs a token, and that one is missing, wrong or expired."
_NEXT_STEP = "On the controller's machine, run: offcut page"


class Login:
    """Answers a request without the token itself, and hands on all others to `app`.

    Args:
        app: the page.
        key: returns the key that signs what opens it; None: nothing does.
        now_s: returns the seconds since 1970.
        cookie: the cookie's name; pages of other controllers on the same host have others.
        secure: whether the page is served over TLS.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        key: Callable[[], PageKey | None],
        now_s: Callable[[], float],
        cookie: str,
        secure: bool,
    ) -> None:
        self._app = app
        self._key = key
        self._now_s = now_s
        self._cookie = cookie
        self._secure = secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope)
        answer = self._answer(request)
        await (self._app if answer is None else answer)(scope, receive, send)

    def _answer(self, request: Request) -> Response | None:
        """Return a refusal, or a redirect that takes the token out of the address; None: the request may go on."""
        key, now_s = self._key(), self._now_s()
        if key is None:
            return self._refusal(request)
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and key.token_is_good(bearer.strip(), now_s):
            return None
        # At the root only: the cookie is for the directory of the address that sets it, whatever a proxy's prefix is.
        shown = request.query_params.get("token") if request.url.path == "/" else None
        if shown is not None:
            if request.method != "GET" or not key.token_is_good(shown, now_s):
                return self._refusal(request)
            return self._welcome(request, key, expiry(shown) or now_s, now_s)
        if key.cookie_is_good(request.cookies.get(self._cookie, ""), now_s):
            return None
        return self._refusal(request)

    def _welcome(self, request: Request, key: PageKey, expires_s: float, now_s: float) -> Response:
        # Relative, because a proxy may serve the page below a prefix that is not known here.
        answer = RedirectResponse("./", status_code=303)
        answer.set_cookie(
            self._cookie,
            key.cookie(expires_s),
            max_age=int(expires_s - now_s),
            path=None,
            secure=self._secure,
            httponly=True,
            samesite="strict",
        )
        return answer

    @staticmethod
    def _refusal(request: Request) -> Response:
        # The connection is closed, so that strangers cannot hold many of them.
        headers = {"WWW-Authenticate": 'Bearer realm="offcut"', "Connection": "close"}
        if "text/html" not in request.headers.get("accept", ""):
            return PlainTextResponse(f"{_REFUSED} {_NEXT_STEP}\n", status_code=401, headers=headers)
        page = render("refused.html", what=_REFUSED, next_step=_NEXT_STEP)
        return HTMLResponse(page, status_code=401, headers=headers)
