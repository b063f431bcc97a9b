"""Finds the address at which the other members of a forming generation can connect to this one.

Each member listens at all of its addresses for a moment, says in the rendezvous store where, and connects to the
addresses of the others. Who connects proves by the generation's secret which member it is and which one it means:
two nodes may have the same address on a network that is only theirs, as containers' bridges have.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Protocol

from offcut.errors import ResizeError
from offcut.membership.address_choice import AddressChoice, explain_failures, probed_ranks, probing_ranks
from offcut.membership.generation import Generation
from offcut.process.network_interfaces import LOOPBACK, interfaces
from offcut.wire import rendezvous as wire

#: The members have to reach each other within this.
REACH_LIMIT_S = 20.0
#: How often the members look whether they still have to try.
_LOOK_S = 0.05
#: A node may have many interfaces; these many of the fastest are tried.
_MOST_ADDRESSES = 8
#: Connections that wait for what a member has to say: more are strangers'.
_MOST_UNHEARD = 256
_RANK = struct.Struct(">I")
_PROOF_BYTES = 32

#: The address that this process used last: it is tried first, so that a slow network is waited for only once.
_last_chosen: str | None = None


class Unreachable(ResizeError):
    """This member and those on `nodes` cannot connect to each other."""

    def __init__(self, what: str, nodes: Sequence[str]) -> None:
        super().__init__(what)
        self.nodes = tuple(nodes)


class Keys(Protocol):
    """What is needed of the rendezvous store."""

    def set(self, key: str, value: str) -> None:
        """Store a value."""
        ...

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Return the values of the keys, waiting until all are stored."""
        ...


@dataclass(frozen=True, slots=True)
class _Target:
    """A member to connect to, at one of its addresses."""

    rank: int
    address: str
    proof: bytes


def reachable_address(membership: Generation, rank: int, keys: Keys) -> str:
    """Return the address of this machine at which the other members of the generation can connect to it.

    All members of the generation call it at the same time.

    Args:
        membership: the generation.
        rank: this member's number in it.
        keys: the generation's rendezvous store.

    Raises:
        Unreachable: members cannot reach each other at any address.
    """
    global _last_chosen  # noqa: PLW0603
    nodes = [worker.rpartition("#")[0] for worker in membership.workers]
    if len(set(nodes)) == 1:
        return LOOPBACK
    addresses = _own_addresses()
    with ExitStack() as open_:
        listeners = _listen(addresses, open_)
        keys.set(f"address/{rank}", json.dumps([listener.getsockname()[:2] for listener in listeners]))
        targets = probed_ranks(rank, membership.world)
        told = keys.multi_get([f"address/{target}" for target in targets])
        probes = _Probes(membership, rank, dict(zip(targets, told, strict=True)), nodes)
        choice = AddressChoice(
            [str(listener.getsockname()[0]) for listener in listeners],
            frozenset(probing_ranks(rank, membership.world)),
        )
        _last_chosen = _await_choice(choice, listeners, membership, rank, nodes, probes)
    return _last_chosen


def _own_addresses() -> list[str]:
    found = [interface.address for interface in interfaces()][:_MOST_ADDRESSES]
    # Members in one network namespace that has no other network reach each other there.
    found.append(LOOPBACK)
    return sorted(found, key=lambda address: address != _last_chosen)


def _listen(addresses: Sequence[str], open_: ExitStack) -> list[socket.socket]:
    found = []
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with suppress(OSError):  # the interface has just lost its address
            listener = socket.create_server((address, 0), family=family, backlog=_MOST_UNHEARD)
            listener.setblocking(False)
            found.append(open_.enter_context(listener))
    return found


def _proof(membership: Generation, target: int, prober: int, address: str) -> bytes:
    """Return the proof that the member `prober` means the member `target`, at this address."""
    said = wire.pack(b"reach", membership.group.encode(), str(target).encode(), str(prober).encode(), address.encode())
    return hmac.new(membership.secret.encode(), said, hashlib.sha256).digest()


def _await_choice(
    choice: AddressChoice,
    listeners: Sequence[socket.socket],
    membership: Generation,
    rank: int,
    nodes: Sequence[str],
    probes: _Probes,
) -> str:
    """Accept the other members' connections until it is known which address to use."""
    give_up_s = time.monotonic() + REACH_LIMIT_S
    with selectors.DefaultSelector() as selector, ExitStack() as open_:
        open_.callback(_close_connections, selector)
        for listener in listeners:
            selector.register(listener, selectors.EVENT_READ)
        while (chosen := choice.chosen(time.monotonic())) is None:
            probes.check()
            if time.monotonic() > give_up_s:
                missing = sorted({nodes[other] for other in choice.missing_ranks})
                raise Unreachable(f"{choice.explain(nodes)} within {REACH_LIMIT_S:g} s", missing)
            for key, _ in selector.select(_LOOK_S):
                if key.data is None:
                    _accept(key.fileobj, selector)  # type: ignore[arg-type]
                elif (heard := _hear(key)) is not None:
                    selector.unregister(key.fileobj)
                    _close(key)
                    address, prober, proof = heard
                    if hmac.compare_digest(proof, _proof(membership, rank, prober, address)):
                        choice.note_reached(address, prober, time.monotonic())
    return chosen


def _accept(listener: socket.socket, selector: selectors.BaseSelector) -> None:
    with suppress(OSError):
        connection, _ = listener.accept()
        if len(selector.get_map()) > _MOST_UNHEARD:
            connection.close()
            return
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, bytearray())


def _hear(key: selectors.SelectorKey) -> tuple[str, int, bytes] | None:
    """Return the address at which a connection came, the rank that it names, and its proof; None until all is there.

    One that ends early is answered as one that proves nothing.
    """
    connection: socket.socket = key.fileobj  # type: ignore[assignment]
    size = _RANK.size + _PROOF_BYTES
    try:
        data = connection.recv(size - len(key.data))
        key.data.extend(data)
        if data and len(key.data) < size:
            return None
        address = str(connection.getsockname()[0])
    except BlockingIOError:
        return None
    except OSError:
        return "", 0, b""
    if len(key.data) < size:
        return "", 0, b""
    (prober,) = _RANK.unpack_from(key.data)
    return address, prober, bytes(key.data[_RANK.size :])


def _close_connections(selector: selectors.BaseSelector) -> None:
    for key in list(selector.get_map().values()):
        if key.data is not None:
            _close(key)


def _close(key: selectors.SelectorKey) -> None:
    key.fileobj.close()  # type: ignore[union-attr]


class _Probes:
    """Connects to other members at all of their addresses, in a thread of its own.

    It goes on when this member has chosen its own address: others choose by it.
    """

    def __init__(self, membership: Generation, rank: int, told: dict[int, bytes], nodes: Sequence[str]) -> None:
        self._said = _RANK.pack(rank)
        self._nodes = nodes
        self._targets = {
            target: [(str(address), int(port)) for address, port in json.loads(places)]
            for target, places in told.items()
        }
        self._membership, self._rank = membership, rank
        self._failures: dict[int, dict[str, str]] = {target: {} for target in self._targets}
        self._unreachable: Unreachable | None = None
        threading.Thread(target=self._run, name="offcut-probe", daemon=True).start()

    def check(self) -> None:
        """Raise Unreachable if another member cannot be reached at any of its addresses."""
        if self._unreachable is not None:
            raise self._unreachable

    def _run(self) -> None:
        give_up_s = time.monotonic() + REACH_LIMIT_S
        with selectors.DefaultSelector() as selector:
            for rank, places in self._targets.items():
                for address, port in places:
                    self._begin(rank, address, port, selector)
            while selector.get_map() and (left_s := give_up_s - time.monotonic()) > 0:
                for key, _ in selector.select(left_s):
                    selector.unregister(key.fileobj)
                    self._end(key.data, key.fileobj)  # type: ignore[arg-type]
            for key in list(selector.get_map().values()):
                self._note_failure(key.data, errno.ETIMEDOUT)
                _close(key)

    def _begin(self, rank: int, address: str, port: int, selector: selectors.BaseSelector) -> None:
        target = _Target(rank, address, _proof(self._membership, rank, self._rank, address))
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            connection = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:  # this machine has no IPv6
            self._note_failure(target, error.errno or 0)
            return
        connection.setblocking(False)
        failed = connection.connect_ex((address, port))
        if failed in (0, errno.EINPROGRESS):
            selector.register(connection, selectors.EVENT_WRITE, target)
        else:
            self._note_failure(target, failed)
            connection.close()

    def _end(self, target: _Target, connection: socket.socket) -> None:
        with connection:
            failed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                self._note_failure(target, failed)
                return
            with suppress(OSError):
                connection.sendall(self._said + target.proof)
            self._failures.pop(target.rank, None)

    def _note_failure(self, target: _Target, number: int) -> None:
        """Note that one address of a member cannot be reached; it is unreachable when that holds for all of them."""
        failures = self._failures.get(target.rank)
        if failures is None:
            return
        failures[target.address] = os.strerror(number)
        if len(failures) == len(self._targets[target.rank]):
            node = self._nodes[target.rank]
            self._unreachable = Unreachable(explain_failures(node, failures), [node])
