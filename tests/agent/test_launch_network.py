"""Which network the ranks of a launch meet over: what the user says, else the route to the controller."""

from __future__ import annotations

import pytest

from offcut.agent import launch_network
from offcut.agent.launch_network import gloo_env, meeting_host

ROUTE = "10.1.0.11"


@pytest.mark.parametrize(
    ("env", "host"),
    [
        ({}, ROUTE),
        ({"GLOO_SOCKET_IFNAME": "lo"}, "127.0.0.1"),
        ({"GLOO_SOCKET_IFNAME": "lo,eth1"}, "127.0.0.1"),
        ({"GLOO_SOCKET_IFNAME": "nothing0"}, ROUTE),
        ({"GLOO_SOCKET_IFNAME": ""}, ROUTE),
    ],
)
def test_the_address_for_other_ranks(env: dict[str, str], host: str) -> None:
    assert meeting_host(env, ROUTE) == host


def test_gloo_is_told_the_interface_where_the_own_name_resolves_to_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_network, "resolves_to_loopback", lambda _: True)
    assert gloo_env({}, "127.0.0.1") == {"GLOO_SOCKET_IFNAME": "lo"}
    assert gloo_env({}, "203.0.113.7") == {}, "no interface has that address"
    assert gloo_env({"GLOO_SOCKET_IFNAME": "ib0"}, "127.0.0.1") == {}, "the user's choice stands"


def test_gloo_is_told_nothing_where_the_own_name_resolves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_network, "resolves_to_loopback", lambda _: False)
    assert gloo_env({}, "127.0.0.1") == {}
