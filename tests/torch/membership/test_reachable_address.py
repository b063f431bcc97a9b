"""Members find out where they can reach each other: threads of this process stand for members on two nodes."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from offcut.membership.generation import Generation
from offcut.process.network_interfaces import Interface
from offcut.torch.membership import reachable_address as module
from offcut.torch.membership.reachable_address import Unreachable, reachable_address

NOWHERE = "203.0.113.7"  # of the range kept for documentation: no machine has it


try:
    socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    IPV6 = True
except OSError:
    IPV6 = False


class Keys:
    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self._changed:
            self.values[key] = value.encode()
            self._changed.notify_all()

    def multi_get(self, keys: list[str]) -> list[bytes]:
        with self._changed:
            assert self._changed.wait_for(lambda: all(key in self.values for key in keys), 60)
            return [self.values[key] for key in keys]


@pytest.fixture(autouse=True)
def one_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has two addresses: one that is down by the time it is used, and 127.0.0.2."""
    found = [Interface(name="gone0", address=NOWHERE, speed=100), Interface(name="data0", address="127.0.0.2")]
    monkeypatch.setattr(module, "interfaces", lambda: found)
    monkeypatch.setattr(module, "_last_chosen", None)


def generation(world: int, number: int = 1) -> Generation:
    workers = tuple(f"n{rank:02d}#{rank}:0" for rank in range(world))
    return Generation(number, workers, store="", job="job", secret=f"secret-{number}")


def meet(world: int, keys: Keys) -> list[str]:
    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(lambda rank: reachable_address(generation(world), rank, keys), range(world)))


@pytest.mark.parametrize("world", [2, 3, 20])
def test_members_meet_at_the_first_address_that_works(world: int) -> None:
    assert meet(world, Keys()) == ["127.0.0.2"] * world


@pytest.mark.skipif(not IPV6, reason="this machine has no IPv6")
def test_members_meet_over_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "interfaces", lambda: [Interface(name="data0", address="::1")])
    assert meet(3, Keys()) == ["::1"] * 3


def test_the_ranks_of_one_node_need_no_network() -> None:
    ranks = Generation(1, ("n01#1:0", "n01#1:1"), store="", job="job", secret="secret")
    assert reachable_address(ranks, 1, Keys()) == "127.0.0.1"


def test_a_stranger_at_an_address_is_not_a_member() -> None:
    """It connects and knows no secret, ends early, or says nothing."""
    keys = Keys()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(reachable_address, generation(2), 0, keys)
        ((address, port), *_) = json.loads(keys.multi_get(["address/0"])[0])
        strangers = [socket.create_connection((address, port)) for _ in range(3)]
        strangers[0].sendall(b"\0\0\0\1" + bytes(32))
        strangers[1].sendall(b"\0\0")
        strangers[1].close()
        time.sleep(0.2)
        assert not first.done()
        assert pool.submit(reachable_address, generation(2), 1, keys).result(60) == "127.0.0.2"
        assert first.result(60) == "127.0.0.2"
        for stranger in strangers:
            stranger.close()


def test_says_at_once_which_node_refuses_connections() -> None:
    keys = Keys()
    with socket.create_server(("127.0.0.2", 0)) as closed:
        port = closed.getsockname()[1]
    keys.set("address/1", json.dumps([["127.0.0.2", port]]))
    with pytest.raises(Unreachable, match=r"cannot connect to n01 \(127\.0\.0\.2: Connection refused\)"):
        reachable_address(generation(2), 0, keys)


def test_says_who_has_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REACH_LIMIT_S", 0.5)
    keys = Keys()
    with socket.create_server(("127.0.0.2", 0)) as silent:
        keys.set("address/1", json.dumps([silent.getsockname()]))
        with pytest.raises(Unreachable, match=r"n01 cannot connect to this node at 127\.0\.0\.2 within"):
            reachable_address(generation(2), 0, keys)
