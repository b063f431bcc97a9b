"""`--listen`: the address for agents, and what is refused before anything starts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from offcut.errors import InputError
from offcut.service.listen import endpoint
from offcut.wire import certificate


def test_loopback_in_the_clear_unless_asked(tmp_path: Path) -> None:
    found = endpoint(None, tmp_path)
    with found.bind() as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        assert found.url(7) == "ws://127.0.0.1:7/v1/agents"


@pytest.mark.parametrize(
    ("listen", "host", "port", "url"),
    [
        ("localhost", "localhost", 0, "wss://localhost:7/v1/agents"),
        ("localhost:7001", "localhost", 7001, "wss://localhost:7/v1/agents"),
        ("10.0.0.5:7001", "10.0.0.5", 7001, "wss://10.0.0.5:7/v1/agents"),
        ("::1", "::1", 0, "wss://[::1]:7/v1/agents"),
        ("[::1]:7001", "::1", 7001, "wss://[::1]:7/v1/agents"),
    ],
)
def test_a_named_host_is_behind_tls(tmp_path: Path, listen: str, host: str, port: int, url: str) -> None:
    certificate.create(tmp_path, ["localhost", "10.0.0.5", "::1"])
    found = endpoint(listen, tmp_path)
    assert (found.host, found.port, found.url(7)) == (host, port, url)
    assert found.certificate is not None


@pytest.mark.parametrize("listen", ["", "0.0.0.0", "[::]:80", "::", ":7001"])
def test_a_wildcard_address_is_refused(tmp_path: Path, listen: str) -> None:
    with pytest.raises(InputError, match="names no host"):
        endpoint(listen, tmp_path)


@pytest.mark.parametrize("port", ["x", "0", "65536", "-1"])
def test_an_invalid_port_is_refused(tmp_path: Path, port: str) -> None:
    with pytest.raises(InputError, match="is not a valid port"):
        endpoint(f"localhost:{port}", tmp_path)


def test_without_a_certificate_no_network_address_is_accepted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no certificate"):
        endpoint("localhost", tmp_path)
    certificate.create(tmp_path, ["login1", "203.0.113.7"])
    with pytest.raises(InputError, match="not for localhost"):
        endpoint("localhost", tmp_path)
    with pytest.raises(InputError, match="is not an address of this machine"):
        endpoint("203.0.113.7", tmp_path).bind()  # of the range kept for documentation: no machine has it


def test_a_name_that_resolves_to_loopback_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian maps a host's own name to 127.0.1.1: agents could not connect, and no one would know why."""
    certificate.create(tmp_path, ["login1"])
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(InputError, match="resolves login1 to its own loopback") as refused:
        endpoint("login1", tmp_path).bind()
    assert "127.0.1.1" in refused.value.next_step
