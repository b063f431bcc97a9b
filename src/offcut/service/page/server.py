"""Serves the page over TCP: an application of its own, which knows no command."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import socket
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from email.utils import formatdate
from functools import partial
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from offcut import __version__
from offcut.process import clocks
from offcut.service import error_responses
from offcut.service.audit import Audited, AuditLog
from offcut.service.body_limit import BodyLimit
from offcut.service.controller import Controller
from offcut.service.limits import BODY_BYTES, page_connections
from offcut.service.listen import Endpoint, page_endpoint
from offcut.service.metric_routes import metric_routes
from offcut.service.page import token_file
from offcut.service.page.action_routes import action_routes
from offcut.service.page.connections import Connections
from offcut.service.page.live_updates import LiveUpdates
from offcut.service.page.login import Login
from offcut.service.page.routes import page_routes
from offcut.service.page.security_headers import SecurityHeaders
from offcut.service.page.token_file import WatchedKey
from offcut.service.page.views import Views
from offcut.service.paths import StatePaths
from offcut.store.journal import Journal
from offcut.wire.tls import Certificate

#: A whole request line with its headers.
_HEADER_BYTES = 16 << 10
#: Of the connections this many are left for pages that are loaded, while all others show live updates.
_LOADING = 16
#: How often to look whether the token needs to be renewed.
_LOOK_S = 3600.0


class PageServer:
    """The page of one controller.

    Args:
        controller: whose state is shown.
        journal: has what happened to a job.
        paths: where the token is, and the logs of jobs.
        certificate: for TLS; None: in the clear, on loopback only.
        most: at most this many connections at once.
        actions: whether the page may change something.
    """

    def __init__(
        self,
        controller: Controller,
        journal: Journal,
        paths: StatePaths,
        certificate: Certificate | None,
        most: int,
        *,
        actions: bool = False,
    ) -> None:
        self._controller = controller
        self._paths = paths
        self._certificate = certificate
        self._views = Views(controller, journal, paths)
        self._updates = LiveUpdates(self._views.parts, max(1, most - _LOADING))
        self._journal = journal
        self._most = most
        self._actions = actions
        self._renew_at_s = 0.0

    def app(self) -> ASGIApp:
        """Return the application, with everything that guards it."""
        app = FastAPI(title="offcut page", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
        app.add_middleware(BodyLimit, most_bytes=BODY_BYTES)
        app.add_middleware(Audited, log=AuditLog(self._paths.audit, self._paths.older_audit), role="page")
        error_responses.install_handlers(app)
        app.include_router(page_routes(self._controller, self._views, self._updates, actions=self._actions))
        if self._actions:
            app.include_router(action_routes(self._controller))
        app.include_router(metric_routes(self._controller, self._journal))
        login = Login(
            app,
            key=WatchedKey(self._paths.page_key).now,
            now_s=clocks.wall_s,
            cookie=cookie_name(self._paths.root),
            secure=self._certificate is not None,
        )
        return SecurityHeaders(login)

    async def serve(self, listener: socket.socket) -> None:
        """Answer browsers until cancelled. StoreError: the token cannot be written."""
        self._renew_token()
        config = uvicorn.Config(
            self.app(),
            log_config=None,
            access_log=False,  # addresses may contain the token
            lifespan="off",
            http="h11",
            ws="none",
            server_header=False,
            h11_max_incomplete_event_size=_HEADER_BYTES,
        )
        config.load()
        server = uvicorn.Server(config)
        # The listener is needed again if this fails and is started again.
        tls = None if self._certificate is None else self._certificate.server_context()
        connections = Connections(listener.dup(), server, tls, self._most)
        self._controller.on_change.append(self._updates.changed)
        updating = asyncio.create_task(self._updates.run())
        connections.start()
        try:
            while True:
                # uvicorn's own loop does this: it is the date in its answers' headers.
                server.server_state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
                # Not at every event: it takes time in proportion to the number of nodes.
                self._views.note_use()
                # Ends early only if the updates fail; then all of this is started again.
                await asyncio.wait((updating,), timeout=1.0)
                if updating.done():
                    await updating
                self._renew_token()
        finally:
            connections.close()
            updating.cancel()
            self._updates.close()
            self._controller.on_change.remove(self._updates.changed)

    def _renew_token(self) -> None:
        now_s = clocks.wall_s()
        if now_s >= self._renew_at_s:
            token_file.current_token(self._paths.page_key, self._paths.page_token, now_s)
            self._renew_at_s = now_s + _LOOK_S


@dataclass(frozen=True, slots=True)
class PageListener:
    """Where browsers connect. `listener` None: the page is not served."""

    place: Endpoint
    listener: socket.socket | None

    @classmethod
    def bound(cls, page: str | None, paths: StatePaths, opened: ExitStack | AsyncExitStack) -> PageListener:
        """Listen where `--page` says. InputError: that is not possible.

        Args:
            page: [HOST:]PORT; None: a free port of loopback; `off`: nowhere.
            paths: where the certificate is.
            opened: closes the listener.
        """
        if page == "off":
            return cls(Endpoint(), None)
        place = page_endpoint(page, paths.certificates)
        return cls(place, opened.enter_context(place.bind()))

    def serve(self, controller: Controller, journal: Journal, paths: StatePaths, *, actions: bool) -> None:
        """Serve the page from now on, and say where. If it fails it is served again; the controller goes on meanwhile.

        `actions`: whether it may change something. Raises OSError.
        """
        if self.listener is None:
            paths.page_address.unlink(missing_ok=True)
            return
        most = page_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        page = PageServer(controller, journal, paths, self.place.certificate, most, actions=actions)
        controller.tasks.keep("page", partial(page.serve, self.listener))
        port = self.listener.getsockname()[1]
        publish_address(paths.page_address, self.place.page_url(port), port)


def cookie_name(root: Path) -> str:
    """Return the name of the cookie of the controller of this state directory."""
    return f"offcut-{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"


def publish_address(path: Path, url: str, port: int) -> None:
    """Write where the page is, for `offcut page`. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps({"url": url, "port": port, "pid": os.getpid()}))
    new.replace(path)
