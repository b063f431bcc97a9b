"""Another Unix user of the machine against the page: no file, no request and no crowd of connections gets him in."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx
import pytest
from controlled import Controlled

from attacks import look_at, outcome, submission
from offcut.process import clocks
from offcut.service.page import token_file
from offcut.service.page.server import PageServer, cookie_name
from offcut.wire import certificate, tokens
from offcut.wire.credentials import Credentials, Identity
from offcut.wire.tls import Certificate, trusting
from strangers import NOBODY, stranger

#: What only those may see who show the token.
SECRET = "the-job-of-somebody"


class Served(Controlled):
    """A controller whose page is served at a port of loopback, and may change something."""

    certificate: Certificate | None = None

    @asynccontextmanager
    async def page(self, most: int = 32) -> AsyncIterator[int]:
        """Serve the page to at most this many connections. Yields the port."""
        self.cluster.statistics = self._statistics  # type: ignore[attr-defined]
        listener = socket.create_server(("127.0.0.1", 0))
        server = PageServer(self.controller, self.journal, self.paths, self.certificate, most, actions=True)
        serving = asyncio.create_task(server.serve(listener))
        try:
            async with asyncio.timeout(120):
                yield listener.getsockname()[1]
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
            listener.close()

    async def _statistics(self) -> dict[str, Any]:
        return {"hand_backs": []}

    def token(self) -> str:
        return token_file.current_token(self.paths.page_key, self.paths.page_token, clocks.wall_s())

    async def answer(self, port: int, path: str, token: str) -> httpx.Response:
        """Return what the page answers to a program that shows this token."""
        trust = trusting(self.certificate.public.read_text()) if self.certificate else False
        scheme = "https" if self.certificate else "http"
        async with httpx.AsyncClient(verify=trust, timeout=60.0) as client:
            headers = {"Authorization": f"Bearer {token}"}
            return await client.get(f"{scheme}://localhost:{port}{path}", headers=headers)


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Served]:
    return lambda: Served(tmp_path / "state", monkeypatch)


def attempts(it: Served, marker: Path) -> list[bytes]:
    """Return requests of somebody who knows everything but the token and the key."""
    token = it.token()
    key = token_file.read_key(it.paths.page_key)
    assert key is not None
    expired, foreign = key.token(clocks.wall_s() - 1), token_file.rotate(it.paths.root / "other.key")
    later = f"{int(clocks.wall_s()) + 10**6}-{token.partition('-')[2]}"
    agent = Credentials.load(it.paths.agent_key, it.paths.credentials).of_identity(Identity("n1", "p"))
    cookie = cookie_name(it.paths.root)

    def request(line: str, *headers: str, body: str = "") -> bytes:
        length = (f"Content-Length: {len(body)}",) if body else ()
        return "\r\n".join((f"{line} HTTP/1.1", "Host: localhost", *headers, *length, "", body)).encode()

    def bearing(shown: str, path: str = "/metrics") -> bytes:
        return request(f"GET {path}", f"Authorization: Bearer {shown}")

    upgrade = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {'A' * 24}",
    )
    return [
        *(request(f"GET {path}") for path in ("/", "/metrics", "/v1/metrics", "/nodes", f"/jobs/{SECRET}", "/docs")),
        *(bearing(wrong) for wrong in ("", " ", "x", token[:-1], token + "0", token.upper(), later, expired, agent)),
        bearing(foreign.token(clocks.wall_s() + 1000)),
        bearing(key.cookie(clocks.wall_s() + 1000)),  # what a browser has is not a token
        request("GET /metrics", f"Cookie: {cookie}={token}"),
        request("GET /metrics", f"Cookie: {cookie}={foreign.cookie(clocks.wall_s() + 1000)}"),
        request("GET /metrics", f"Authorization: Token {token}"),
        request(f"GET /metrics?token={token}"),  # only the root takes one in the address
        request(f"GET /?token={later}"),
        request("GET /static/../../page.token"),
        request("GET //metrics"),
        request("GET http://localhost/metrics"),
        request("GET /metrics", "X-Forwarded-For: 127.0.0.1", "X-Forwarded-User: root", "X-Original-URL: /metrics"),
        request("HEAD /metrics"),
        request("OPTIONS /metrics", "Origin: http://evil"),
        request(f"POST /jobs/{SECRET}/cancel", "Origin: http://localhost", "HX-Request: true", body="x=1"),
        request("POST /nodes/release", "HX-Request: true", body="x=1"),
        request("POST /nodes/claim", f"Cookie: {cookie}={later}", "HX-Request: true", body="x=1"),
        request("POST /v1/release", body="{}"),
        request("GET /v1/agents", f"Authorization: Bearer {agent}", *upgrade),
        request("GET /updates?view=overview", "Accept: text/event-stream", "Last-Event-ID: 1"),
        b"POST /release HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        + request("GET /metrics"),
        b"GET /metrics HTTP/1.0\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        submission(marker),
        b"\x16\x03\x01 neither TLS nor HTTP\r\n\r\n",
    ]


def ask_all(answer: Connection, port: int, requests: list[bytes], tls: bool) -> None:
    """Send each request over a connection of its own. Return all that comes back, and who asked."""
    answers = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for request in requests:
        found = b""
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
            connection = context.wrap_socket(plain) if tls else plain
            connection.sendall(request)
            while data := connection.recv(65536):
                found += data
        answers.append(found)
    answer.send((os.geteuid(), answers))


def hold(answer: Connection, port: int, count: int) -> None:
    """Open connections, half of them with half a request, until told to end."""
    held = []
    for number in range(count):
        with suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", port), timeout=30)
            held.append(connection)
            if number % 2:
                connection.send(b"GET /metrics HTTP/1.1\r\n")
    answer.send(len(held))
    answer.recv()


@pytest.mark.parametrize("tls", [False, pytest.param(True, marks=pytest.mark.ci)], ids=["plain", "tls"])
def test_another_user_is_refused_whatever_is_asked(
    served: Callable[[], Served], tmp_path: Path, tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        it = served()
        it.submit(SECRET)
        marker = Path("/tmp") / f"offcut-{os.getpid()}-evil"
        if tls:
            it.certificate = certificate.create(it.paths.certificates, ["localhost"])
        async with it.page() as port:
            requests = attempts(it, marker)
            assert len(requests) >= 40
            events = it.state.event_id
            who, answers = await asyncio.to_thread(outcome, ask_all, port, requests, tls)
            assert who == NOBODY
            for request, found in zip(requests, answers, strict=True):
                status = found.split(b" ", 2)[1:2]
                assert status in ([b"401"], [b"400"], []), (request[:80], found[:200])
                assert b"offcut_nodes" not in found
                assert SECRET.encode() not in found
                assert b"Set-Cookie" not in found.title()
            assert [found[:12] for found in answers[:6]] == [b"HTTP/1.1 401"] * 6
            # The same requests are answered to those who show the token.
            assert "offcut_nodes" in (await it.answer(port, "/metrics", it.token())).text
            assert SECRET in (await it.answer(port, "/", it.token())).text
        assert it.state.event_id == events
        assert not marker.exists()
        assert not it.paths.audit.exists()
        files = [it.paths.page_key, it.paths.page_token, it.paths.journal, it.paths.root]
        assert await asyncio.to_thread(outcome, look_at, [str(path) for path in files]) == []

    asyncio.run(scenario())
    # A stranger cannot fill the log.
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.ci
def test_a_crowd_of_strangers_does_not_keep_the_owner_out(served: Callable[[], Served]) -> None:
    async def scenario() -> None:
        it = served()
        async with it.page(most=16) as port:
            token = tokens.read(it.paths.page_token) if it.paths.page_token.exists() else it.token()
            descriptors = len(os.listdir("/proc/self/fd"))
            loop = asyncio.get_running_loop()
            with stranger(hold, port, 70) as crowd:
                assert await loop.run_in_executor(None, crowd.recv) > 50
                answer = await it.answer(port, "/metrics", token)
                assert answer.status_code == 200
                assert len(os.listdir("/proc/self/fd")) < descriptors + 40
                crowd.send("that is enough")
            assert (await it.answer(port, "/metrics", token)).status_code == 200

    asyncio.run(scenario())
