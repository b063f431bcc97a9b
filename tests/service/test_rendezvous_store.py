"""The rendezvous store serves, within limits, peers that know a generation's secret, and no others."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection

import psutil
import pytest
import torch.distributed as dist

from live import wait_for
from offcut.membership.generation import Generation
from offcut.service import rendezvous_server
from offcut.service.rendezvous_keys import GenerationKeys, Keys, Limits, Refused
from offcut.torch.membership.rendezvous_store import RendezvousStore
from offcut.wire import messages
from offcut.wire import rendezvous as wire
from rendezvous import Store, running_store
from strangers import NOBODY, stranger

pytestmark = pytest.mark.xdist_group("members")

A_MINUTE = timedelta(seconds=60)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running_store() as running:
        yield running


def member(store: Store, job: str, generation: int, secret: str | None = None) -> RendezvousStore:
    secret = store.secret(job, generation) if secret is None else secret
    return RendezvousStore(store.address, job, generation, secret, A_MINUTE)


# -- what torch asks of a store ---------------------------------------------------------------------------------------


def test_members_share_keys(store: Store) -> None:
    one, other = member(store, "share", 1), member(store, "share", 1)
    one.set("a", b"\x00\xff")
    assert other.get("a") == b"\x00\xff"
    assert (one.add("n", 2), other.add("n", 3)) == (2, 5)
    assert other.check(["a", "n"])
    assert not other.check(["a", "b"])
    one.append("a", b"!")
    assert other.multi_get(["n", "a"]) == [b"5", b"\x00\xff!"]
    assert one.compare_set("c", b"", b"first") == b"first"
    assert other.compare_set("c", b"other", b"second") == b"first"
    assert other.compare_set("c", b"first", b"second") == b"second"
    assert one.num_keys() == 3
    assert one.delete_key("a")
    assert not one.delete_key("a")
    assert dist.PrefixStore("within", one.clone()).add("n", 1) == 1, "torch's own prefix"


def test_a_get_waits_until_another_member_sets(store: Store) -> None:
    one, other = member(store, "wait", 1), member(store, "wait", 1)
    found: list[bytes] = []
    waiting = threading.Thread(target=lambda: found.append(one.get("late")))
    waiting.start()
    other.set("later", b"no")
    other.set("late", b"yes")
    waiting.join(60)
    assert found == [b"yes"]
    with pytest.raises(dist.DistStoreError, match="no member stored 'never'"):
        one.wait(["late", "never"], timedelta(milliseconds=20))


def test_a_waiting_call_can_be_woken_from_another_thread(store: Store) -> None:
    one = member(store, "woken", 1)
    ended: list[str] = []

    def wait() -> None:
        try:
            one.get("never")
        except dist.DistNetworkError:
            ended.append("woken")

    waiting = threading.Thread(target=wait)
    waiting.start()
    one.close()
    waiting.join(60)
    assert ended == ["woken"]


# -- who may do what --------------------------------------------------------------------------------------------------


def test_generations_see_nothing_of_each_other(store: Store) -> None:
    member_of = {name: member(store, *name) for name in (("x", 1), ("x", 2), ("y", 1))}
    for (job, generation), its in member_of.items():
        its.set("who", f"{job}/{generation}")
    assert [its.get("who") for its in member_of.values()] == [b"x/1", b"x/2", b"y/1"]


@pytest.mark.parametrize("secret", ["", "0" * 64], ids=["none", "wrong"])
def test_without_the_secret_no_peer_is_served(store: Store, secret: str) -> None:
    with pytest.raises(dist.DistNetworkError, match="The secret is wrong"):
        member(store, "job", 1, secret)


def test_a_secret_opens_one_generation_only(store: Store) -> None:
    for job, generation in (("job", 2), ("job2", 1), ("", 0)):
        with pytest.raises(dist.DistNetworkError, match="The secret is wrong"):
            member(store, job, generation, store.secret("job", 1))


def test_a_member_tells_nothing_to_a_process_that_took_the_stores_port(store: Store) -> None:
    """Not even something that would be of use at the store: a proof is for one address and one handshake."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as impostor, socket.create_connection(split(store.address)) as real:

        def relay() -> None:
            victim, _ = impostor.accept()
            with victim:
                victim.sendall(real.recv(4096))
                real.sendall(greeting := victim.recv(4096))
                heard.append(greeting)
                heard.append(answer := real.recv(4096))
                victim.sendall(answer)

        thread = threading.Thread(target=relay)
        thread.start()
        with pytest.raises(dist.DistNetworkError):
            RendezvousStore(
                f"127.0.0.1:{impostor.getsockname()[1]}", "job", 1, secret := store.secret("job", 1), A_MINUTE
            )
        thread.join(60)
    assert b"The secret is wrong." in heard[1]
    assert secret.encode() not in heard[0]
    assert bytes.fromhex(secret) not in heard[0]


def split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


# -- a stranger -------------------------------------------------------------------------------------------------------


def torch_string(data: bytes) -> bytes:
    """Return a string in the protocol of torch's TCPStore."""
    return struct.pack("<Q", len(data)) + data


def attack(connection: Connection, address: str, idle: int) -> None:
    """Send torch's own protocol, junk, long frames, requests without a proof, and nothing at all."""

    def connect() -> socket.socket:
        return socket.create_connection(split(address), 30)

    def send(to: socket.socket, data: bytes) -> None:
        with suppress(OSError):
            to.sendall(data)

    kept = [connect() for _ in range(idle)]
    heard = b""
    for _ in range(5):
        with connect() as torch_client:
            send(torch_client, b"\x00" + struct.pack("<I", 0x3C85F7CE))
            for key in range(50):
                send(torch_client, b"\x01" + torch_string(b"job/1/0/%d" % key) + torch_string(b"A" * 65536))
        with connect() as junk:
            send(junk, os.urandom(100_000))
        with connect() as long:
            send(long, struct.pack(">I", 0xFFFFFFFF) + bytes(100_000))
        with connect() as bold:
            bold.recv(1000)
            send(bold, wire.pack(wire.GENERATION, b"job", b"1", bytes(32), bytes(32)))
            for key in range(50):
                send(bold, wire.pack(b"set", b"0/%d" % key, b"A" * 65536) + wire.pack(b"count"))
            with suppress(OSError):
                while part := bold.recv(1000):
                    heard += part
    connection.send((os.getuid(), len(kept), b"ok" in heard))
    connection.recv()


def test_another_user_neither_reads_nor_fills_nor_blocks_the_store() -> None:
    with running_store() as store:
        before = member(store, "job", 1)
        before.set("0/0", b"first")
        memory_bytes = psutil.Process(store.pid).memory_info().rss
        idle = 2 * rendezvous_server.GREETERS
        with stranger(attack, store.address, idle) as other:
            assert other.recv() == (NOBODY, idle, False)
            after = member(store, "job", 1)
            assert after.get("0/0") == b"first"
            assert after.num_keys() == 1
            assert psutil.Process(store.pid).memory_info().rss - memory_bytes < 64 << 20
            wait_for("connections that prove nothing give way", lambda: psutil.Process(store.pid).num_fds() < idle)
        before.set("0/1", b"second")
        assert after.get("0/1") == b"second"


def test_a_silent_peer_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_server, "GREETING_S", 0.1)

    async def idle() -> bytes:
        server = rendezvous_server.Server("master", "here:1")
        async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
            reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
            said = await reader.read()  # to its end
            writer.close()
        return said

    assert wire.VERSION in asyncio.run(idle())


def test_a_members_own_frame_that_is_too_long_ends_its_connection_only(store: Store) -> None:
    one, other = member(store, "long", 1), member(store, "long", 1)
    with pytest.raises(dist.DistNetworkError):
        one.set("k", bytes(wire.FRAME_BYTES))
    other.set("k", b"v")
    assert other.get("k") == b"v"


def test_random_frames_of_a_member_end_in_a_refusal(store: Store) -> None:
    draw = random.Random(0)
    one = member(store, "fuzz", 1)
    for _ in range(300):
        words = [draw.choice([b"set", b"get", b"add", b"wait", b"check", b"nothing", draw.randbytes(8)])]
        words += [draw.randbytes(draw.choice([0, 1, 8])) for _ in range(draw.randrange(4))]
        if words[0] in (b"get", b"wait") and len(words) > 1:
            words[1] = bytes(8)  # no wait
        with suppress(dist.DistStoreError):
            one._ask(*words)
    member(store, "fuzz", 1).set("k", b"v")


# -- limits -----------------------------------------------------------------------------------------------------------


def small() -> tuple[Keys, GenerationKeys]:
    keys = Keys(Limits(keys=3, value_bytes=100, generation_bytes=700, all_bytes=1000, connections=2))
    return keys, keys.join("a", 1)


def test_limits_of_one_generation_and_of_all() -> None:
    keys, a = small()
    for name in (b"1", b"2", b"3"):
        keys.set(a, name, b"")
    with pytest.raises(Refused, match="3 keys"):
        keys.set(a, b"4", b"")
    with pytest.raises(Refused, match="100 bytes"):
        keys.set(a, b"1", bytes(101))
    keys.set(a, b"1", bytes(100))
    with pytest.raises(Refused, match="100 bytes"):
        keys.append(a, b"1", b"x")
    keys.set(a, b"2", bytes(100))
    keys.delete(a, b"3")
    with pytest.raises(Refused, match="700 bytes"):
        keys.set(a, b"x" * 15, bytes(100))
    b = keys.join("b", 1)
    keys.set(b, b"1", bytes(100))
    keys.set(b, b"2", bytes(100))
    with pytest.raises(Refused, match="full"):
        keys.set(b, b"3", bytes(100))
    keys.delete(a, b"1")
    keys.set(b, b"3", bytes(100))


def test_connections_of_one_generation_are_limited() -> None:
    keys, a = small()
    keys.join("a", 1)
    with pytest.raises(Refused, match="2 connections"):
        keys.join("a", 1)
    keys.part("a", 1, a)
    keys.join("a", 1)


def test_a_newer_generation_frees_older_ones() -> None:
    keys, first = small()
    woken: list[str] = []
    keys.set(first, b"k", b"v")
    first.waiting[b"late"] = [lambda: woken.append("first")]
    second = keys.join("a", 2)
    keys.set(second, b"k", b"v")
    assert not first.over, "its members may still look something up"
    third = keys.join("a", 3)
    assert first.over
    assert not second.over
    assert woken == ["first"]
    with pytest.raises(Refused, match="over"):
        keys.set(first, b"k", b"v")
    with pytest.raises(Refused, match="over: there is a generation 3"):
        keys.join("a", 1)
    keys.part("a", 1, first)
    for number, keys_of in ((2, second), (3, third)):
        keys.part("a", number, keys_of)
    assert keys.stored_bytes == 0


def test_keys_are_freed_after_the_last_connection() -> None:
    keys, a = small()
    keys.set(a, b"k", b"v")
    keys.part("a", 1, a)
    assert keys.stored_bytes == 0
    assert keys.join("a", 1).values == {}


def test_resizes_without_end_leave_nothing_behind(store: Store) -> None:
    members = []
    for generation in range(1, 30):
        members.append(member(store, "long-lived", generation))
        members[-1].set("k", bytes(1000))
    assert members[-1].num_keys() == 1
    with pytest.raises(dist.DistError):
        members[0].get("k")
    with pytest.raises(dist.DistNetworkError, match="Generation 1 of long-lived is over: there is a generation 29"):
        member(store, "long-lived", 1)


def test_a_membership_shown_in_a_log_does_not_show_its_secret(store: Store) -> None:
    secret = store.secret("job", 1)
    assert secret not in repr(Generation(1, ("a", "b"), store.address, "job", secret=secret))
    said = messages.NewGeneration(job="job", generation=1, members=(), store=store.address, secret=secret, abort=False)
    assert secret not in repr(said)
