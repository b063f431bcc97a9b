"""Makes and reads the controller's TLS certificate: self-signed, and the only one that agents trust.

Agents on other machines connect over a network. The certificate's public part is in the address file, which only the
owner's processes can write. So no certificate authority is needed, and no other machine can pass for the controller.
An agent proves who it is by its token.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from offcut.errors import InputError, StoreError
from offcut.wire.tls import Certificate


def create(directory: Path, hosts: Sequence[str], days: int = 365) -> Certificate:
    """Write `certificate.pem` and `key.pem` (0600) for `hosts`, replacing what was there; at least one host."""
    names = [_name(host) for host in hosts]
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "offcut controller")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ a little
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(directory / "key.pem", secret)
        _write(directory / "certificate.pem", made.public_bytes(serialization.Encoding.PEM))
    except OSError as error:
        raise StoreError(
            f"The certificate cannot be written to {directory}: {error.strerror}.", next_step="Choose another --state."
        ) from None
    return load(directory)


def load(directory: Path) -> Certificate:
    """Return the certificate that `create` wrote.

    InputError if it is missing, unreadable or its key is open to others.
    """
    public, key = directory / "certificate.pem", directory / "key.pem"
    try:
        found = x509.load_pem_x509_certificate(public.read_bytes())
        mode = key.stat().st_mode
    except FileNotFoundError as error:
        raise InputError(
            f"There is no certificate in {directory}: {error.filename} is missing.",
            next_step="Make one with: offcut certificate --host NAME",
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"The certificate {public} cannot be read: {error}.", next_step="Make a new one.") from None
    if mode & 0o077:
        raise InputError(f"The key {key} can be read by others.", next_step=f"Run: chmod 600 {key}")
    alternatives = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return Certificate(
        public=public,
        key=key,
        names=tuple(str(name.value) for name in alternatives),
        until=found.not_valid_after_utc,
        fingerprint=found.fingerprint(hashes.SHA256()).hex(":"),
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise InputError(f"--host: '{host}' is neither a host name nor an address.") from None


def _write(path: Path, data: bytes) -> None:
    """Write the file with mode 0600 from the first byte, and whole or not at all."""
    unborn = path.with_suffix(".new")
    unborn.unlink(missing_ok=True)
    with os.fdopen(os.open(unborn, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    unborn.replace(path)
