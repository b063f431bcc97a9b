"""The machine's network interfaces, in a network namespace of the test's own where that can be made."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hosts import lacking
from offcut.process.network_interfaces import interface_address, interfaces, is_loopback, resolves_to_loopback


def test_loopback_is_not_among_them() -> None:
    assert all(not is_loopback(found.address) for found in interfaces())
    assert interface_address("lo") == "127.0.0.1"
    assert interface_address("nothing0") is None


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.1.1", True), ("::1", True), ("::1%lo", True), ("10.1.0.1", False), ("login1", False)],
)
def test_what_only_this_machine_can_connect_to(address: str, loopback: bool) -> None:
    assert is_loopback(address) == loopback


def test_a_name_that_resolves_to_loopback() -> None:
    assert resolves_to_loopback("localhost")
    assert not resolves_to_loopback("203.0.113.7")
    assert not resolves_to_loopback("no.such.host.invalid")


@pytest.mark.skipif(bool(lacking()), reason=lacking())
def test_those_with_a_link_and_an_address() -> None:
    set_up = """
        ip link set lo up
        for name in both0 six0 down0 bare0; do
            ip link add $name type veth peer name $name-end
            ip link set $name-end up
        done
        ip address add 10.9.0.1/24 dev both0
        ip address add 10.9.1.1/24 dev both0
        ip address add fd00::1/64 dev both0 nodad
        ip address add fd00::2/64 dev six0 nodad
        ip address add 10.9.2.1/24 dev down0
        for name in both0 six0 bare0; do ip link set $name up; done
    """
    show = (
        "from offcut.process.network_interfaces import interfaces\n"
        "print(*sorted(f'{found.name}={found.address}' for found in interfaces()))"
    )
    run = subprocess.run(
        ["unshare", "-n", "sh", "-ec", f'{set_up}\nexec "$0" -c "$1"', sys.executable, show],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.split() == ["both0=10.9.0.1", "six0=fd00::2"], run.stderr
