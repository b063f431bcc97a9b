"""The rendezvous store's protocol: frames, secrets and the handshake, for its server and its clients.

A store serves generations of jobs. Each has its own keys and its own secret, which the controller derives from the
store's master secret and tells the generation's members. The store derives it too, so nothing is registered.
Both sides prove that they know it, over a random number of the other's and the store's address, and never send it:

    server: version, number
    client: kind, job, generation, number, proof
    server: ok, proof

A connection of the kind CONTROL is the controller's own, with a secret that no generation has.

A frame is a list of byte strings: the length of the whole, then each with its length, all as 32-bit big-endian numbers.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from typing import Any

from offcut.errors import ProtocolError

VERSION = b"offcut-rendezvous-1"
GENERATION = b"generation"
CONTROL = b"control"

#: The largest frame of a peer that has not finished its handshake.
GREETING_BYTES = 2048
#: Any other frame. A value of the largest size fits with room for its key.
FRAME_BYTES = 4 << 20

_LENGTH = struct.Struct(">I")
LENGTH_BYTES = _LENGTH.size


def length(head: bytes) -> int:
    """Return how many bytes follow the first LENGTH_BYTES of a frame."""
    size: int = _LENGTH.unpack(head)[0]
    return size


def pack(*fields: bytes) -> bytes:
    """Return a whole frame."""
    body = b"".join(part for field in fields for part in (_LENGTH.pack(len(field)), field))
    return _LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> list[bytes]:
    """Return the fields of a frame without its length. ProtocolError if they do not fill it exactly."""
    fields = []
    at = 0
    while at < len(body):
        start = at + LENGTH_BYTES
        if start > len(body):
            raise ProtocolError("A frame of the rendezvous store ends within a field's length.")
        at = start + length(body[at:start])
        if at > len(body):
            raise ProtocolError("A frame of the rendezvous store ends within a field.")
        fields.append(body[start:at])
    return fields


def nonce() -> bytes:
    """Return a random number for one handshake."""
    return secrets.token_bytes(32)


def generation_secret(master: str, job: str, generation: int) -> str:
    """Return the secret that the members of one generation of a job prove that they know."""
    return _derive(master, GENERATION, job.encode(), str(generation).encode())


def control_secret(master: str) -> str:
    """Return the secret that the controller proves that it knows."""
    return _derive(master, CONTROL)


def _derive(master: str, *fields: bytes) -> str:
    return hmac.new(master.encode(), pack(*fields), hashlib.sha256).hexdigest()


def proof(secret: str, side: bytes, address: str, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """Return proof that `side` (`client` or `server`) knows the secret, in this handshake with the store at `address`.

    A process that answers at another address can do nothing with it.
    """
    said = pack(side, address.encode(), server_nonce, client_nonce)
    return hmac.new(secret.encode(), said, hashlib.sha256).digest()


def proves(given: bytes, *known: Any) -> bool:
    """Return whether `given` is `proof(*known)`, in a time that does not depend on how much of it is right."""
    return hmac.compare_digest(given, proof(*known))
