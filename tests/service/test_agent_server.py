"""The listener for agents: who is admitted, within which limits, and that no peer keeps others out."""

from __future__ import annotations

import asyncio
import random
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from offcut.errors import ProtocolError
from offcut.service import agent_server
from offcut.service.agent_server import AgentServer
from offcut.service.agent_socket import AgentSocket
from offcut.service.limits import NetworkLimits, network_limits, raise_descriptor_limit
from offcut.wire import certificate
from offcut.wire.tls import trusting

ENOUGH = NetworkLimits(connections=50, pending=20)
UPGRADE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
HANDSHAKE = b"GET /v1/agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n" + UPGRADE
GOOD = {"Authorization": "Bearer good"}


class Echo:
    """Greets with the first message, and answers each."""

    def __init__(self, agent: AgentSocket, served: Served, peer: str) -> None:
        self.agent = agent
        self.served = served
        self.peer = peer

    def receive(self, data: bytes) -> int:
        self.served.heard.append(data)
        if data == b"bad":
            raise ProtocolError("This is not a message.")
        self.served.server.greeted(self.agent)
        self.agent.send_text(f"heard {len(data)} bytes")
        return 1

    def refuse(self, reason: str) -> None:
        self.agent.send_text(f"refused: {reason}")

    def ended(self) -> None:
        self.served.ended += 1


class Served:
    """A server on loopback. Credentials begin with the word 'good'; what follows it names the agent."""

    def __init__(self, limits: NetworkLimits, tls: ssl.SSLContext | None = None) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = listener.getsockname()[1]
        self.url = f"{'wss' if tls else 'ws'}://localhost:{self.port}/v1/agents"
        self.heard: list[bytes] = []
        self.ended = 0
        self.server = AgentServer(listener, limits, self.admit, tls)
        self.server.start()

    def admit(self, agent: AgentSocket, authorization: str) -> Echo | None:
        return Echo(agent, self, authorization) if authorization.startswith("Bearer good") else None

    async def ask(self, data: bytes) -> bytes:
        """Return what is answered, to the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(data)
            await writer.drain()
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


@asynccontextmanager
async def serving(limits: NetworkLimits = ENOUGH, tls: ssl.SSLContext | None = None) -> AsyncIterator[Served]:
    served = Served(limits, tls)
    try:
        async with asyncio.timeout(60):
            yield served
    finally:
        served.server.close()


def test_headers_decide_before_anything_else_is_read() -> None:
    bad = [
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{}",
        b"GET /docs HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/agents HTTP/1.1\r\nHost: x\r\n" + UPGRADE,
        b"GET /v1/agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer bad\r\n" + UPGRADE,
        b"GET /v1/other HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n" + UPGRADE,
        b"GET /v1/agents HTTP/1.1\r\nHost: x\r\n" + 2 * b"Authorization: Bearer good\r\n" + UPGRADE,
    ]

    async def scenario() -> None:
        async with serving() as served:
            for request in bad:
                assert (await served.ask(request)).startswith(b"HTTP/1.1 401 ")
            assert b"HTTP/1.1 101 " not in await served.ask(b"\x16\x03\x01 no HTTP\r\n\r\n")
            assert b"HTTP/1.1 101 " not in await served.ask(b"GET /v1/agents HTTP/1.1\r\nX: " + b"x" * 100_000)
            with pytest.raises(InvalidStatus):
                await connect(served.url)
            assert served.heard == []
            assert served.ended == 0

    asyncio.run(scenario())


def test_an_agent_is_served_and_its_end_is_told_once() -> None:
    async def scenario() -> None:
        async with serving() as served:
            async with connect(served.url, additional_headers=GOOD) as agent:
                await agent.send("ü")
                assert await agent.recv() == "heard 2 bytes"
                await agent.send(["in ", "three ", "parts"])
                assert await agent.recv() == "heard 14 bytes"
            while not served.ended:
                await asyncio.sleep(0.01)
            async with connect(served.url, additional_headers=GOOD) as agent:
                await agent.send("bad")
                assert await agent.recv() == "refused: This is not a message."
                with pytest.raises(ConnectionClosed):
                    await agent.recv()
            async with connect(served.url, additional_headers=GOOD) as agent:
                await agent.send(b"binary")
                assert "text" in str(await agent.recv())
            while served.ended < 3:
                await asyncio.sleep(0.01)
            assert served.ended == 3

    asyncio.run(scenario())


def test_a_message_that_is_too_large_ends_the_connection() -> None:
    async def scenario() -> None:
        async with serving(NetworkLimits(connections=5, pending=5, message_bytes=1000)) as served:
            async with connect(served.url, additional_headers=GOOD) as agent:
                await agent.send("x" * 1001)
                with pytest.raises(ConnectionClosed) as closed:
                    await agent.recv()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1009
            # Parts and compression do not make more of it.
            async with connect(served.url, additional_headers=GOOD) as agent:
                await agent.send(["x" * 600, "x" * 600])
                with pytest.raises(ConnectionClosed):
                    await agent.recv()
            assert served.heard == []

    asyncio.run(scenario())


def test_a_peer_that_sends_too_much_is_read_more_slowly_and_loses_nothing() -> None:
    limits = NetworkLimits(connections=5, pending=5, messages_per_s=50.0)

    async def scenario() -> None:
        async with serving(limits) as served, connect(served.url, additional_headers=GOOD) as agent:
            began_s = asyncio.get_running_loop().time()
            for _ in range(2):
                for _ in range(150):
                    await agent.send("x")
                for _ in range(150):
                    await agent.recv()
            # A hundred at once, and fifty a second on average; the last of what is in hand is not waited for.
            assert asyncio.get_running_loop().time() - began_s >= 0.9
            assert len(served.heard) == 300
            agent.transport.abort()

    asyncio.run(scenario())


def test_a_peer_that_does_not_read_is_cut_off() -> None:
    limits = NetworkLimits(connections=5, pending=5, unsent_bytes=1 << 20)

    async def scenario() -> None:
        async with serving(limits) as served:
            agents: list[AgentSocket] = []
            admit = served.admit
            served.server._admit = lambda agent, given: (agents.append(agent), admit(agent, given))[1]  # type: ignore[func-returns-value]
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
            writer.write(HANDSHAKE)
            assert b" 101 " in await reader.readline()
            while not served.ended:
                agents[0].send_text("x" * 100_000)
                await asyncio.sleep(0)
            writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_strangers_who_only_connect_do_not_keep_an_agent_out(tmp_path: Path, tls: bool) -> None:
    """More of them than may be pending, and than there is room for; half of them begin a request."""
    made = certificate.create(tmp_path, ["localhost"])
    server_tls = made.server_context() if tls else None
    client_tls = trusting(made.public.read_text()) if tls else None
    limits = NetworkLimits(connections=30, pending=10, greeting_s=30.0, displace_s=0.1)

    async def scenario() -> None:
        async with serving(limits, server_tls) as served:
            first = await connect(served.url, additional_headers=GOOD, ssl=client_tls)
            await first.send("hello")
            await first.recv()
            there = "127.0.0.1", served.port
            strangers = [await asyncio.to_thread(socket.create_connection, there) for _ in range(60)]
            for stranger in strangers[::2]:
                stranger.send(b"POST /v1/jobs HTTP/1.1\r\n")
            async with connect(served.url, additional_headers=GOOD, ssl=client_tls, open_timeout=30) as second:
                await second.send("hello")
                assert await second.recv() == "heard 5 bytes"
                await first.send("hello")
                assert await first.recv() == "heard 5 bytes"
            assert len(served.server._all) <= limits.connections
            for stranger in strangers:
                stranger.close()
            await first.close()
            while served.server._all:
                await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_agents_that_dial_at_once_do_not_displace_each_other() -> None:
    limits = NetworkLimits(connections=50, pending=4, greeting_s=60.0, displace_s=0.0)

    async def scenario() -> None:
        async with serving(limits) as served:
            agents = [
                await connect(served.url, additional_headers={"Authorization": f"Bearer good {i}"}) for i in range(20)
            ]
            for agent in agents:  # all have been admitted, and none has greeted until now
                await agent.send("hello")
                assert await agent.recv() == "heard 5 bytes"
            for agent in agents:
                await agent.close()

    asyncio.run(scenario())


def test_of_an_agent_the_newest_connections_that_have_not_greeted_are_open() -> None:
    limits = NetworkLimits(connections=20, pending=9, greeting_s=60.0)
    most = agent_server._MOST_UNGREETED

    async def scenario() -> None:
        async with serving(limits) as served:
            first = await connect(served.url, additional_headers=GOOD)
            await first.send("hello")
            assert await first.recv() == "heard 5 bytes"
            oldest, *newer = [await connect(served.url, additional_headers=GOOD) for _ in range(most + 1)]
            with pytest.raises(ConnectionClosed):
                await oldest.recv()
            for agent in (first, *newer):  # the first has greeted: who it is for decides what replaces it
                await agent.send("hello")
                assert await agent.recv() == "heard 5 bytes"
            assert not served.server._admitted
            for agent in (first, *newer):
                await agent.close()
            while served.server._all:
                await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_a_peer_that_sends_nothing_is_closed() -> None:
    limits = NetworkLimits(connections=9, pending=9, greeting_s=0.2)

    async def scenario() -> None:
        async with serving(limits) as served:
            assert await served.ask(b"") == b""
            assert await served.ask(b"GET /v1/agents HTT") == b""
            async with connect(served.url, additional_headers=GOOD) as agent:
                with pytest.raises(ConnectionClosed):
                    await agent.recv()  # it has shown its credential, and says nothing more
            while served.server._all:
                await asyncio.sleep(0.01)

    asyncio.run(scenario())


def damaged_request(choose: random.Random) -> bytes:
    request = bytearray(HANDSHAKE)
    for _ in range(choose.randint(1, 4)):
        request[choose.randrange(len(request))] = choose.randrange(256)
    return bytes(request)


def odd_frames(choose: random.Random) -> bytes:
    """WebSocket frames of every kind, of kinds that there are not, whole and in parts."""
    frames = b""
    for _ in range(choose.randint(1, 20)):
        first = choose.choice((0x80, 0)) | choose.choice((0, 0x40)) | choose.choice((0, 1, 2, 3, 8, 9, 10, 11))
        payload = choose.randbytes(choose.choice((0, 1, 5, 125)))
        frames += bytes((first, 0x80 | len(payload), 0, 0, 0, 0)) + payload
    return HANDSHAKE + frames


@pytest.mark.parametrize(
    "make",
    [
        lambda choose: choose.randbytes(choose.randint(1, 3000)),
        damaged_request,
        lambda choose: HANDSHAKE + choose.randbytes(choose.randint(1, 3000)),
        odd_frames,
    ],
    ids=["bytes", "request", "bytes after it", "frames after it"],
)
def test_any_input_ends_the_connection_and_raises_nothing(make: Callable[[random.Random], bytes]) -> None:
    choose = random.Random(5)
    raised: list[dict[str, object]] = []

    async def once(served: Served) -> None:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(make(choose))
            if choose.random() < 0.5:
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1000), 0.05)
            (writer.transport.abort if choose.random() < 0.5 else writer.close)()

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        async with serving(NetworkLimits(connections=60, pending=30, greeting_s=1.0, message_bytes=1000)) as served:
            for _ in range(10):
                await asyncio.gather(*(once(served) for _ in range(20)))
            while served.server._all:
                await asyncio.sleep(0.01)
            async with connect(served.url, additional_headers=GOOD) as agent:
                await agent.send("x")
                assert await agent.recv() == "heard 1 bytes"

    asyncio.run(scenario())
    assert raised == []


def test_descriptors_are_kept_for_the_owner() -> None:
    for descriptors in (128, 256, 1024, 4096, 1 << 20):
        limits = network_limits(descriptors)
        assert limits.connections <= descriptors - 64
        assert 0 < limits.pending < limits.connections


def test_the_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, before[1]), before[1]))
        assert raise_descriptor_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
