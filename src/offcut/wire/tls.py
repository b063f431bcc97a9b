"""The two ends of a TLS connection between the controller and an agent.

Apart from `certificate`, so that agents, and controllers that only listen on loopback, start without `cryptography`.
"""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass
from pathlib import Path

from offcut.errors import InputError

_MAKE = "Make one with: offcut certificate --host {host} --renew"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and the path of its key. `names`: host names and addresses that it is good for."""

    public: Path
    key: Path
    names: tuple[str, ...]
    until: datetime.datetime
    fingerprint: str

    def check_covers(self, host: str) -> None:
        """Raise InputError unless agents that connect to `host` today would accept the certificate."""
        if host not in self.names:
            raise InputError(
                f"The certificate {self.public} is for {', '.join(self.names)}, not for {host}.",
                next_step=_MAKE.format(host=host),
            )
        if self.until <= datetime.datetime.now(datetime.UTC):
            raise InputError(
                f"The certificate {self.public} ended on {self.until:%Y-%m-%d}.", next_step=_MAKE.format(host=host)
            )

    def server_context(self) -> ssl.SSLContext:
        """Return the context of a listener that shows this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.public, self.key)
        return context


def trusting(public_pem: str) -> ssl.SSLContext:
    """Return a client's context that accepts this one certificate, under the names that it is good for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=public_pem)
    return context
