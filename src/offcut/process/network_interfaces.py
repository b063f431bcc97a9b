"""Lists this machine's network interfaces and their addresses, from the kernel."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

LOOPBACK = "127.0.0.1"

_SIOCGIFFLAGS, _SIOCGIFADDR = 0x8913, 0x8915
_IFF_UP, _IFF_LOOPBACK, _IFF_RUNNING = 0x1, 0x8, 0x40
_NAME_BYTES = 16
_GLOBAL_SCOPE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface that is up and has a link, with the address under which others may reach it."""

    name: str
    address: str
    #: In Mbit/s; 0 where the driver does not say.
    speed: int = 0


def interfaces() -> list[Interface]:
    """Return the interfaces that can carry traffic to other machines, the fastest first.

    Loopback is left out, and so is what is down, has no link, or has no address of more than its own link. Each has
    its first IPv4 address, or without one its first global IPv6 address.
    """
    ipv6 = _ipv6_addresses()
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            address = _ipv4_address(asking, name) or ipv6.get(name)
            flags = _flags(asking, name)
            if address and flags & _IFF_UP and flags & _IFF_RUNNING and not flags & _IFF_LOOPBACK:
                found.append(Interface(name=name, address=address, speed=_speed(name)))
    return sorted(found, key=lambda interface: -interface.speed)


def interface_address(name: str) -> str | None:
    """Return the address of the interface with this name; None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        return _ipv4_address(asking, name) or _ipv6_addresses().get(name)


def interface_with(address: str) -> str | None:
    """Return the name of the interface that has this address; None if none has."""
    return next((name for _, name in socket.if_nameindex() if interface_address(name) == address), None)


def is_loopback(address: str) -> bool:
    """Return whether only this machine can connect to the address."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def resolves_to_loopback(host: str) -> bool:
    """Return whether this machine resolves the name to its own loopback: Debian maps a host's own name to 127.0.1.1."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(is_loopback(str(entry[4][0])) for entry in found)


def _flags(asking: socket.socket, name: str) -> int:
    with suppress(OSError):
        (flags,) = struct.unpack_from("H", _ask(asking, _SIOCGIFFLAGS, name), _NAME_BYTES)
        return int(flags)
    return 0


def _ipv4_address(asking: socket.socket, name: str) -> str | None:
    with suppress(OSError):  # it has no IPv4 address, or has gone
        return socket.inet_ntoa(_ask(asking, _SIOCGIFADDR, name)[_NAME_BYTES + 4 : _NAME_BYTES + 8])
    return None


def _ask(asking: socket.socket, request: int, name: str) -> bytes:
    return fcntl.ioctl(asking, request, name.encode().ljust(_NAME_BYTES + 24, b"\0"))


def _ipv6_addresses() -> dict[str, str]:
    """Return the first global IPv6 address of each interface (proc(5): /proc/net/if_inet6)."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, _, _, scope, _, name = line.split()
            if int(scope, 16) == _GLOBAL_SCOPE:
                found.setdefault(name, str(ipaddress.IPv6Address(bytes.fromhex(digits))))
    return found


def _speed(name: str) -> int:
    with suppress(OSError, ValueError):
        return max(0, int(Path("/sys/class/net", name, "speed").read_text()))
    return 0
