"""Messages to agents are compressed once, however many agents they are sent to."""

from __future__ import annotations

import asyncio

import pytest
from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame
from websockets.uri import parse_uri

from offcut.service import agent_socket
from offcut.service.agent_socket import AgentSocket, encode_frame
from offcut.service.limits import NetworkLimits
from offcut.wire import messages

LONG = messages.Note(job="a", text="one member after another, " * 100).encoded


class Deaf:
    def receive(self, data: bytes) -> int:
        return 1

    def refuse(self, reason: str) -> None:
        pass

    def ended(self) -> None:
        pass


class Pipe(asyncio.Transport):
    """What the server writes goes to the client's protocol at once."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


def connect(factory: ClientPerMessageDeflateFactory | None) -> tuple[AgentSocket, Pipe, ClientProtocol]:
    client = ClientProtocol(
        parse_uri("ws://x/v1/agents"), extensions=None if factory is None else [factory], max_size=None
    )
    request = client.connect()
    request.headers["Authorization"] = "Bearer good"
    client.send_request(request)
    limits = NetworkLimits(connections=9, pending=9)
    server, pipe = AgentSocket(limits, lambda *_: Deaf(), lambda _: None), Pipe()
    server.connection_made(pipe)
    for data in client.data_to_send():
        server.data_received(data)
    return server, pipe, client


def read(client: ClientProtocol, pipe: Pipe) -> list[str]:
    for data in pipe.written:
        client.receive_data(data)
    pipe.written.clear()
    return [bytes(event.data).decode() for event in client.events_received() if isinstance(event, Frame)]


@pytest.mark.parametrize(
    "factory",
    [
        None,
        ClientPerMessageDeflateFactory(compress_settings={"memLevel": 5}),
        ClientPerMessageDeflateFactory(server_max_window_bits=9),
        ClientPerMessageDeflateFactory(client_no_context_takeover=True),
    ],
)
def test_every_peer_reads_what_it_is_sent(factory: ClientPerMessageDeflateFactory | None) -> None:
    async def scenario() -> None:
        server, pipe, client = connect(factory)
        sent = [LONG, "short", LONG, LONG + LONG, "", LONG]
        for text in sent:
            server.send_text(text)
        assert read(client, pipe) == sent

    asyncio.run(scenario())


def test_a_message_to_many_is_compressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compressed = 0
    encode = agent_socket.PerMessageDeflate.encode

    def counted(self: agent_socket.PerMessageDeflate, frame: Frame) -> Frame:
        nonlocal compressed
        compressed += 1
        return encode(self, frame)

    async def scenario() -> None:
        peers = [connect(ClientPerMessageDeflateFactory()) for _ in range(20)]
        encode_frame.cache_clear()
        monkeypatch.setattr(agent_socket.PerMessageDeflate, "encode", counted)
        for server, _, _ in peers:
            server.send_text(LONG)
        assert compressed == 1
        assert all(len(b"".join(pipe.written)) < len(LONG) / 2 for _, pipe, _ in peers[1:])
        assert all(read(client, pipe) == [LONG] for _, pipe, client in peers)

    asyncio.run(scenario())
