"""The certificate: its files, and which peers are refused."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from offcut.errors import InputError
from offcut.wire import certificate, tls


def test_a_certificate_is_good_for_its_hosts_only(tmp_path: Path) -> None:
    made = certificate.create(tmp_path, ["login1", "10.0.0.5", "::1"], days=30)
    assert made.names == ("login1", "10.0.0.5", "::1")
    assert made == certificate.load(tmp_path)
    made.check_covers("10.0.0.5")
    with pytest.raises(InputError, match=r"for login1, 10\.0\.0\.5, ::1, not for login2"):
        made.check_covers("login2")


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    made = certificate.create(tmp_path, ["login1"])
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    with pytest.raises(InputError, match="ended on"):
        replace(made, until=past).check_covers("login1")


def test_only_the_owner_can_read_the_key(tmp_path: Path) -> None:
    made = certificate.create(tmp_path, ["login1"])
    assert made.key.stat().st_mode & 0o777 == 0o600
    made.key.chmod(0o644)
    with pytest.raises(InputError, match="can be read by others"):
        certificate.load(tmp_path)


def test_missing_and_invalid_certificates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no certificate"):
        certificate.load(tmp_path)
    made = certificate.create(tmp_path, ["login1"])
    made.public.write_text("nonsense")
    with pytest.raises(InputError, match="cannot be read"):
        certificate.load(tmp_path)
    with pytest.raises(InputError, match="neither a host name nor an address"):
        certificate.create(tmp_path, ["knödel"])


@pytest.mark.parametrize(
    ("dialled", "trusted", "accepted"), [("localhost", 0, True), ("127.0.0.1", 0, False), ("localhost", 1, False)]
)
def test_a_client_trusts_one_certificate_under_its_names(
    tmp_path: Path, dialled: str, trusted: int, accepted: bool
) -> None:
    """Another certificate for the same name, or the right one under another name, is refused."""
    ours = certificate.create(tmp_path / "ours", ["localhost"])
    other = certificate.create(tmp_path / "other", ["localhost"])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(ours.public, ours.key)
    near, far = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(far, server_side=True) as accepted_socket:
                accepted_socket.sendall(b"hello")
        except OSError:
            far.close()

    serving = threading.Thread(target=serve)
    serving.start()
    context = tls.trusting((ours, other)[trusted].public.read_text())
    try:
        if accepted:
            with context.wrap_socket(near, server_hostname=dialled) as client:
                assert client.recv(5) == b"hello"
        else:
            with pytest.raises(ssl.SSLCertVerificationError):
                context.wrap_socket(near, server_hostname=dialled)
    finally:
        near.close()
        serving.join()
