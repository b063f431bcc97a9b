"""Where agents reach the controller, and browsers the page: loopback, or one named address behind TLS."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from offcut.errors import InputError
from offcut.process.network_interfaces import is_loopback, resolves_to_loopback
from offcut.wire.tls import Certificate

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What to listen on and what agents or browsers dial. `certificate` None: loopback only, in the clear.

    `option` is what asked for it, for error messages.
    """

    host: str = _LOOPBACK
    port: int = 0
    certificate: Certificate | None = None
    option: str = "--listen"

    def bind(self) -> socket.socket:
        """Return a listening socket. InputError if this machine has no such address or the port is taken."""
        if not self._is_meant_as_loopback and resolves_to_loopback(self.host):
            raise InputError(
                f"{self.option}: this machine resolves {self.host} to its own loopback, where no other machine can "
                "connect.",
                next_step="Name the address under which compute nodes see this machine (`hostname -I` lists its "
                "addresses), or correct /etc/hosts, where Debian maps a host's own name to 127.0.1.1.",
            )
        try:
            family, _, _, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            return socket.create_server(address[:2], family=family)
        except OSError as error:
            raise InputError(
                f"{self.option}: {self.host}:{self.port} is not an address of this machine: {error.strerror}.",
                next_step="Name this machine as compute nodes see it; `hostname -I` lists its addresses.",
            ) from None

    @property
    def _is_meant_as_loopback(self) -> bool:
        return self.host == "localhost" or is_loopback(self.host)

    def url(self, port: int) -> str:
        """Return the address that agents connect to, given the port that was bound."""
        return f"{'wss' if self.certificate else 'ws'}://{self._url_host}:{port}/v1/agents"

    def page_url(self, port: int) -> str:
        """Return the address of the page, given the port that was bound."""
        return f"{'https' if self.certificate else 'http'}://{self._url_host}:{port}/"

    @property
    def _url_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def endpoint(listen: str | None, certificates: Path, option: str = "--listen") -> Endpoint:
    """Return the endpoint that `--listen HOST[:PORT]` asks for; None: loopback.

    `certificates`: where a certificate lies. An address that is asked for by name is behind TLS, so that nothing
    crosses a network in the clear by mistake. Raises InputError for a wildcard (agents need one address to connect to)
    and where no certificate covers the host.
    """
    if listen is None:
        return Endpoint()
    host, port = _split(listen, option)
    if host in ("", "0.0.0.0", "::", "*"):
        raise InputError(
            f"{option}: '{listen}' names no host that could be dialled.",
            next_step="Name this machine as compute nodes see it; `hostname -I` lists its addresses.",
        )
    from offcut.wire import certificate  # takes a while to load

    found = certificate.load(certificates)
    found.check_covers(host)
    return Endpoint(host, port, found, option)


def page_endpoint(page: str | None, certificates: Path) -> Endpoint:
    """Return the endpoint that `--page [HOST:]PORT` asks for; None: a free port on loopback.

    `certificates`: where a certificate lies. Raises InputError as `endpoint` does.
    """
    if page is None:
        return Endpoint(option="--page")
    host, port = _split(page if ":" in page else f":{page}", "--page")
    if host in ("", _LOOPBACK):
        return Endpoint(port=port, option="--page")
    return endpoint(page, certificates, "--page")


def _split(listen: str, option: str = "--listen") -> tuple[str, int]:
    if listen.startswith("["):
        host, _, rest = listen[1:].partition("]")
        port = rest.removeprefix(":")
    elif listen.count(":") > 1:  # an IPv6 address alone
        host, port = listen, ""
    else:
        host, _, port = listen.partition(":")
    if not port:
        return host, 0
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise InputError(
            f"{option}: '{port}' is not a valid port.", next_step="Write HOST or HOST:PORT with 1 to 65535."
        )
    return host, int(port)
