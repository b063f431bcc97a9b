"""Secrets in files that only their owner can read; never in an argument list or a log."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from offcut.errors import InputError, StoreError


def create(path: Path) -> str:
    """Write a new token to `path` with mode 0600 and return it; an existing file is kept and read."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read(path)
    except OSError as error:
        raise StoreError(
            f"The token file {path} cannot be written: {error.strerror}.", next_step="Choose another --state."
        ) from None
    with os.fdopen(descriptor, "w") as file:
        token = secrets.token_urlsafe(32)
        file.write(token + "\n")
    return token


def read(path: Path) -> str:
    """The token in `path`; InputError if it is missing or others could read it."""
    try:
        mode = path.stat().st_mode
        token = path.read_text().strip()
    except OSError as error:
        raise InputError(
            f"The token file {path} cannot be read: {error.strerror}.",
            next_step="Is a controller running with this state directory?",
        ) from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"The token file {path} can be read by others.", next_step=f"Run: chmod 600 {path}")
    return token


def matches(given: str, token: str) -> bool:
    """Compare without telling by the time it takes how much was right."""
    return secrets.compare_digest(given.encode(), token.encode())
