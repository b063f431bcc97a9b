"""The rendezvous store, a small process beside the controller.

    python -m offcut.service.rendezvous_server ADDRESS_FILE SECRET_FILE --listen HOST

Members of a generation find each other through it. It keeps nothing that matters across generations, so it can be
replaced; and it outlives the controller, so that training goes on while the controller is restarted. It ends by itself
when no controller has been connected for a while, or once ADDRESS_FILE does not name it any more.

A peer that has not proved that it knows a secret (see `offcut.wire.rendezvous`) can only use up one of a few
connections for a few seconds, and the oldest of those makes room for the next.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from offcut.errors import ProtocolError
from offcut.service.rendezvous_keys import GenerationKeys, Keys, Limits, Refused
from offcut.wire import rendezvous as wire
from offcut.wire import tokens

#: How long it waits for a controller to come back, unless told otherwise.
LINGER_S = 600.0
#: How long a handshake may take, and how many may be going on at once.
GREETING_S = 10.0
GREETERS = 256
#: The longest that a wait lasts; longer ones are cut to this.
_LONGEST_WAIT_S = 86_400.0
_LOOK_S = 1.0
_SECONDS = struct.Struct(">d")


class Server:
    """Serves connections; `controlled` counts those of the controller."""

    def __init__(self, master: str, address: str, limits: Limits | None = None) -> None:
        self._master = master
        self._address = address
        self._keys = Keys(limits or Limits())
        #: Connections that have not finished their handshake, oldest first.
        self._greeters: dict[asyncio.StreamWriter, None] = {}
        self.controlled = 0
        self.stopped = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, from its handshake to its end."""
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, TimeoutError, ProtocolError):
            pass
        finally:
            self._greeters.pop(writer, None)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._greeters) >= GREETERS:
            oldest = next(iter(self._greeters))
            del self._greeters[oldest]  # now: many may come before its end is noticed
            oldest.transport.abort()
        self._greeters[writer] = None
        async with asyncio.timeout(GREETING_S):
            kind, job, number, ok = await self._greet(reader, writer)
        self._greeters.pop(writer, None)
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if kind == wire.CONTROL:
            self.controlled += 1
            try:
                writer.write(ok)
                await self._obey(reader, writer)
            finally:
                self.controlled -= 1
            return
        try:
            generation = self._keys.join(job, number)
        except Refused as refusal:
            writer.write(wire.pack(b"refused", refusal.what.encode()))
            await writer.drain()
            return
        try:
            writer.write(ok)
            await self._answer(generation, reader, writer)
        finally:
            self._keys.part(job, number, generation)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[bytes, str, int, bytes]:
        """Do the handshake. Return who the peer is and what to answer; ProtocolError if it does not know the secret."""
        ours = wire.nonce()
        writer.write(wire.pack(wire.VERSION, ours))
        fields = await _read(reader, wire.GREETING_BYTES)
        try:
            kind, job_, number_, theirs, proof = fields
            job, number = job_.decode(), int(number_)
        except ValueError:
            raise ProtocolError("This is not a greeting.") from None
        if kind == wire.CONTROL:
            secret = wire.control_secret(self._master)
        else:
            secret = wire.generation_secret(self._master, job, number)
        if not wire.proves(proof, secret, b"client", self._address, ours, theirs):
            writer.write(wire.pack(b"refused", b"The secret is wrong."))
            await writer.drain()
            raise ProtocolError("The secret is wrong.")
        return kind, job, number, wire.pack(b"ok", wire.proof(secret, b"server", self._address, ours, theirs))

    async def _obey(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while fields := await _read(reader, wire.GREETING_BYTES):
            if fields[0] == b"stop":
                self.stopped.set()
            writer.write(wire.pack(b"ok"))
            await writer.drain()

    async def _answer(
        self, generation: GenerationKeys, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer the requests of one member, one after another, until it leaves or its generation is over."""
        while not generation.over:
            fields = await _read(reader, wire.FRAME_BYTES)
            try:
                answer = await self._handle(generation, fields, reader)
            except Refused as refusal:
                answer = [b"refused", refusal.what.encode()]
            writer.write(wire.pack(*answer))
            # A peer that does not read its answers is not read from.
            await writer.drain()

    async def _handle(
        self, generation: GenerationKeys, fields: list[bytes], reader: asyncio.StreamReader
    ) -> list[bytes]:
        keys = self._keys
        match fields:
            case [b"set", key, value]:
                keys.set(generation, key, value)
            case [b"append", key, value]:
                keys.append(generation, key, value)
            case [b"add", key, amount]:
                total = keys.add(generation, key, _number(amount))
                return [b"ok", str(total).encode()]
            case [b"compare_set", key, expected, desired]:
                current = keys.compare_set(generation, key, expected, desired)
                return [b"ok", current]
            case [b"delete", key]:
                return [b"ok", b"1" if keys.delete(generation, key) else b"0"]
            case [b"count"]:
                return [b"ok", str(len(generation.values)).encode()]
            case [b"check", *names]:
                return [b"ok", b"0" if keys.missing(generation, names) is not None else b"1"]
            case [b"get" | b"wait" as kind, seconds, *names]:
                missing = await self._stored(generation, names, _seconds(seconds), reader)
                if missing is not None:
                    return [b"timeout", missing]
                if kind == b"get":
                    return [b"ok", *_bounded(generation.values[name] for name in names)]
            case _:
                raise Refused("The rendezvous store does not know this request.")
        return [b"ok"]

    async def _stored(
        self, generation: GenerationKeys, names: Sequence[bytes], limit_s: float, reader: asyncio.StreamReader
    ) -> bytes | None:
        """Wait until all keys are stored. Return the first that is still missing after `limit_s`.

        EOFError once the member has gone. It sends nothing while it waits.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + limit_s
        gone: asyncio.Future[bytes] | None = None
        try:
            while (missing := self._keys.missing(generation, names)) is not None:
                if generation.over:
                    raise Refused("This generation is over.")
                left_s = until_s - loop.time()
                if left_s <= 0:
                    return missing
                gone = gone or asyncio.ensure_future(reader.read(1))
                stored = asyncio.Event()
                with _called(generation.waiting, missing, stored.set):
                    stored_or_over = asyncio.ensure_future(stored.wait())
                    await asyncio.wait((stored_or_over, gone), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                    stored_or_over.cancel()
                if gone.done():
                    raise EOFError
        finally:
            if gone is not None:
                gone.cancel()
                await asyncio.wait((gone,))
        return None


@contextlib.contextmanager
def _called(waiting: dict[bytes, list[Callable[[], None]]], key: bytes, wake: Callable[[], None]) -> Iterator[None]:
    """Have `wake` called when `key` is stored, until the block is left."""
    waiting.setdefault(key, []).append(wake)
    try:
        yield
    finally:
        if wake in waiting.get(key, ()):
            waiting[key].remove(wake)
            if not waiting[key]:
                del waiting[key]


async def _read(reader: asyncio.StreamReader, limit_bytes: int) -> list[bytes]:
    """Return the next frame. ProtocolError if it is too long or empty, EOFError at the end."""
    size = wire.length(await reader.readexactly(wire.LENGTH_BYTES))
    if not 0 < size <= limit_bytes:
        raise ProtocolError(f"A frame of {size} bytes.")
    return wire.unpack(await reader.readexactly(size))


def _number(field: bytes) -> int:
    try:
        return int(field)
    except ValueError:
        raise Refused("This is not a number.") from None


def _seconds(field: bytes) -> float:
    if len(field) != _SECONDS.size:
        raise Refused("This is not a duration.")
    seconds: float = _SECONDS.unpack(field)[0]
    return min(seconds, _LONGEST_WAIT_S) if seconds > 0 else 0.0


def _bounded(values: Iterable[bytes]) -> list[bytes]:
    """Return the fields if they fit into one frame; raises Refused if they do not."""
    found: list[bytes] = []
    size = 0
    for value in values:
        size += len(value) + wire.LENGTH_BYTES
        if size > wire.FRAME_BYTES - wire.GREETING_BYTES:
            raise Refused("Too much for one answer.")
        found.append(value)
    return found


def _listen(host: str) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=1024)


def _all_descriptors() -> None:
    """Allow as many connections as the system lets this process have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def run(address_file: Path, secret_file: Path, host: str, linger_s: float) -> None:
    """Serve until told to stop, until no peer is left to serve, or until another store has replaced this one."""
    _all_descriptors()
    listener = _listen(host)
    address = f"{host}:{listener.getsockname()[1]}"
    server = Server(tokens.read(secret_file), address)
    told = json.dumps({"address": address, "pid": os.getpid()})
    async with await asyncio.start_server(server.serve, sock=listener):
        whole = address_file.with_suffix(".new")
        whole.write_text(told)
        whole.replace(address_file)
        loop = asyncio.get_running_loop()
        seen_s = loop.time()
        while loop.time() - seen_s < linger_s and _says(address_file, told):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.stopped.wait(), _LOOK_S)
                break
            if server.controlled:
                seen_s = loop.time()
    if _says(address_file, told):
        address_file.unlink(missing_ok=True)


def _says(file: Path, text: str) -> bool:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return file.read_text() == text
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address_file", type=Path, help="where to write the address and the process id")
    parser.add_argument("secret_file", type=Path, help="the master secret, which only its owner may read")
    parser.add_argument("--listen", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--linger-s", type=float, default=LINGER_S, help="how long it waits for a controller")
    given = parser.parse_args()
    asyncio.run(run(given.address_file, given.secret_file, given.listen, given.linger_s))


if __name__ == "__main__":
    main()
