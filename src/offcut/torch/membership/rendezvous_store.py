"""A member's side of the rendezvous store, as a torch.distributed.Store.

Every call blocks in a socket, without Python's lock, until the store has answered.
"""

from __future__ import annotations

import atexit
import os
import socket
import struct
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist

from offcut.errors import ProtocolError
from offcut.wire import rendezvous as wire

#: An answer that does not wait for another member comes within this, even if the store's machine is busy.
_ANSWER_S = 60.0


class RendezvousStore(dist.Store):
    """The keys of one generation of a job. Keep a reference to it for as long as torch uses it.

    Raises dist.DistNetworkError if the store has died, refuses, or does not know the secret.
    """

    def __init__(self, address: str, job: str, generation: int, secret: str, timeout: timedelta) -> None:
        """Connect to `address` (HOST:PORT); `timeout` is how long a get waits for a key by default."""
        super().__init__()
        self._generation = address, job, generation, secret
        self.set_timeout(timeout)
        self._lock = threading.Lock()
        self._owner = os.getpid()
        host, _, port = address.rpartition(":")
        try:
            self._connection = socket.create_connection((host, int(port)), timeout.total_seconds())
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._greet(address, job, generation, secret)
        except OSError as error:
            raise dist.DistNetworkError(f"the rendezvous store at {address} does not answer: {error}") from None
        _open.add(self)

    def _greet(self, address: str, job: str, generation: int, secret: str) -> None:
        version, theirs = self._receive(2)
        if version != wire.VERSION:
            raise dist.DistNetworkError("the process there is not a rendezvous store of this version of offcut")
        ours = wire.nonce()
        proof = wire.proof(secret, b"client", address, theirs, ours)
        self._connection.sendall(wire.pack(wire.GENERATION, job.encode(), str(generation).encode(), ours, proof))
        kind, said = self._receive(2)
        if kind != b"ok":
            raise dist.DistNetworkError(f"the rendezvous store refuses: {said.decode(errors='replace')}")
        if not wire.proves(said, secret, b"server", address, theirs, ours):
            raise dist.DistNetworkError("the process there does not know the secret: it is not the rendezvous store")

    def _receive(self, fields: int | None = None) -> list[bytes]:
        head = self._exactly(wire.LENGTH_BYTES)
        size = wire.length(head)
        if size > wire.FRAME_BYTES:
            raise dist.DistNetworkError("the process there is not a rendezvous store")
        try:
            found = wire.unpack(self._exactly(size))
        except ProtocolError:
            found = []
        if not found or (fields is not None and len(found) != fields):
            raise dist.DistNetworkError("the process there is not a rendezvous store")
        return found

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._connection.recv(min(size - len(data), 1 << 16))
            if not part:
                raise ConnectionError("it has closed the connection")
            data += part
        return bytes(data)

    def _ask(self, *fields: bytes, wait_s: float = 0.0) -> list[bytes]:
        """Return the answer's fields. A request that waits may take `wait_s` longer."""
        with self._lock:
            try:
                self._connection.settimeout(_ANSWER_S + wait_s)
                self._connection.sendall(wire.pack(*fields))
                kind, *answer = self._receive()
            except OSError as error:
                # The next message may be the answer to an earlier request.
                self._connection.close()
                raise dist.DistNetworkError(f"the rendezvous store has died: {error}") from None
        if kind == b"timeout":
            raise dist.DistStoreError(f"no member stored {answer[0].decode(errors='replace')!r} within {wait_s:g} s")
        if kind != b"ok":
            raise dist.DistStoreError(f"the rendezvous store refuses: {b''.join(answer).decode(errors='replace')}")
        return answer

    def close(self) -> None:
        """End the connection; a call that waits raises DistNetworkError."""
        if os.getpid() == self._owner:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    # -- what torch calls ---------------------------------------------------------------------------------------------

    def set(self, key: str, value: str | bytes) -> None:
        self._ask(b"set", key.encode(), _bytes(value))

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        wait_s = self.timeout.total_seconds()
        return self._ask(b"get", _SECONDS.pack(wait_s), *(key.encode() for key in keys), wait_s=wait_s)

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def append(self, key: str, value: str | bytes) -> None:
        self._ask(b"append", key.encode(), _bytes(value))

    def add(self, key: str, amount: int) -> int:
        return int(self._ask(b"add", key.encode(), str(amount).encode())[0])

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self._ask(b"compare_set", key.encode(), _bytes(expected), _bytes(desired))[0]

    def delete_key(self, key: str) -> bool:
        return self._ask(b"delete", key.encode()) == [b"1"]

    def check(self, keys: Sequence[str]) -> bool:
        return self._ask(b"check", *(key.encode() for key in keys)) == [b"1"]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        wait_s = (timeout or self.timeout).total_seconds()
        self._ask(b"wait", _SECONDS.pack(wait_s), *(key.encode() for key in keys), wait_s=wait_s)

    def num_keys(self) -> int:
        return int(self._ask(b"count")[0])

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> RendezvousStore:
        """Return the same keys over a connection of its own, for another thread."""
        return RendezvousStore(*self._generation, self.timeout)


_SECONDS = struct.Struct(">d")

_open: weakref.WeakSet[RendezvousStore] = weakref.WeakSet()


def _close_all() -> None:
    for store in list(_open):
        store.close()


# A torch thread that waits in a store must have left Python before the interpreter is finalized.
atexit.register(_close_all)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
