"""Over which network the ranks of a launch meet (mode `restart`).

The scripts make their own process groups, so their networks cannot be tried beforehand as members of a generation do.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from offcut.process.network_interfaces import interface_address, interface_with, resolves_to_loopback
from offcut.wire.worker_env import ENV_GLOO_INTERFACE


def meeting_host(env: Mapping[str, str], route_address: str) -> str:
    """Return this node's address for the other ranks.

    Args:
        env: the ranks' environment; an interface that it names for gloo decides.
        route_address: the node's address on its route to the controller, used without such a choice.
    """
    name = env.get(ENV_GLOO_INTERFACE, "").partition(",")[0]
    return (name and interface_address(name)) or route_address


def gloo_env(env: Mapping[str, str], host: str) -> dict[str, str]:
    """Return what to add to the ranks' environment so that gloo finds a network; empty where it finds one itself.

    Without a setting gloo uses the address to which this machine's own name resolves, on Debian 127.0.1.1, where no
    other node can connect. Then it is told the interface that has the address `host`.
    """
    if env.get(ENV_GLOO_INTERFACE) or not resolves_to_loopback(socket.gethostname()):
        return {}
    name = interface_with(host)
    return {ENV_GLOO_INTERFACE: name} if name else {}
