"""The API: HTTP for commands, one WebSocket for agents. The only way in.

The owner's UNIX socket needs no token: the kernel lets nobody else open it. Everything that comes over TCP must carry
the token.
"""

from __future__ import annotations

import asyncio

from fastapi import Depends, FastAPI, HTTPException, Request, WebSocket, WebSocketDisconnect
from fastapi.requests import HTTPConnection
from fastapi.responses import JSONResponse

from offcut import __version__
from offcut.cluster.base import Cluster
from offcut.errors import OffcutError, ProtocolError
from offcut.service.agents import AgentConnection
from offcut.service.controller import Controller
from offcut.service.job_routes import job_routes
from offcut.service.node_routes import node_routes
from offcut.service.paths import StatePaths
from offcut.store.journal import Journal
from offcut.wire import messages, tokens


def build(controller: Controller, journal: Journal, cluster: Cluster, paths: StatePaths, token: str) -> FastAPI:
    """The API of one controller; `token` admits those who come over TCP."""

    def allowed(connection: HTTPConnection) -> bool:
        if connection.client is None:
            return True  # the owner's UNIX socket has no peer address
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        return scheme == "Bearer" and tokens.matches(given, token)

    def check_token(connection: HTTPConnection) -> None:
        # An agent is told in its own protocol.
        if connection.scope["type"] == "http" and not allowed(connection):
            raise HTTPException(401, "The token is missing or wrong.")

    app = FastAPI(title="offcut", version=__version__, dependencies=[Depends(check_token)])

    @app.exception_handler(OffcutError)
    async def _refuse(_: Request, error: OffcutError) -> JSONResponse:
        code = 400 if error.exit_code == 2 else 500
        return JSONResponse({"error": error.what, "next_step": error.next_step}, status_code=code)

    app.include_router(job_routes(controller, journal, paths))
    app.include_router(node_routes(controller, cluster))

    @app.websocket("/v1/agents")
    async def _agents(socket: WebSocket) -> None:
        await socket.accept()
        if not allowed(socket):
            await _refuse_agent(socket, "the token is wrong", fatal=False)
            return
        try:
            await _serve_agent(controller, socket)
        except WebSocketDisconnect:
            pass
        except ProtocolError as error:
            await _refuse_agent(socket, str(error), fatal=True)

    return app


async def _refuse_agent(socket: WebSocket, reason: str, *, fatal: bool) -> None:
    try:
        await socket.send_text(messages.Refused(reason=reason, fatal=fatal).model_dump_json())
        await socket.close()
    except (WebSocketDisconnect, RuntimeError):
        pass  # it has gone by itself


async def _serve_agent(controller: Controller, socket: WebSocket) -> None:
    """One agent's connection, from its hello to its end."""
    hello = messages.from_agent(await socket.receive_text())
    if not isinstance(hello, messages.Hello):
        raise ProtocolError(f"An agent began with '{hello.kind}' instead of 'hello'.")
    messages.check_version(hello.version)
    connection = AgentConnection(hello.node, hello.pilot, socket)
    pump = asyncio.create_task(connection.pump())
    try:
        controller.agent_connected(connection, hello)
        loop = asyncio.get_running_loop()
        while True:
            message = messages.from_agent(await socket.receive_text())
            connection.heard_s = loop.time()
            if not isinstance(message, messages.Heartbeat):
                controller.agent_said(hello.node, message)
    finally:
        pump.cancel()
        controller.agents.disconnected(connection)
