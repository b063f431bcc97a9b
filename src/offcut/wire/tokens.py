"""Secrets in files that only their owner can read; never in an argument list or a log."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from offcut.errors import InputError, StoreError


def create(path: Path) -> str:
    """Write a new random secret to `path` and return it; an existing file is kept and read.

    Only one process at a time may do this for one path.
    """
    if path.exists():
        return read(path)
    token = secrets.token_urlsafe(32)
    write(path, token)
    return token


def write(path: Path, token: str) -> None:
    """Write `token` to `path`, with mode 0600 from the first byte, whole or not at all. StoreError if that fails."""
    unborn = path.with_name(f".{path.name}.new")
    try:
        unborn.unlink(missing_ok=True)
        with os.fdopen(os.open(unborn, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(token + "\n")
        unborn.replace(path)
    except OSError as error:
        raise StoreError(
            f"The secret {path} cannot be written: {error.strerror}.", next_step="Choose another --state."
        ) from None


def read(path: Path) -> str:
    """Return the secret in `path`. InputError if it is missing, empty, another user's, or readable by others."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
            told = os.fstat(file.fileno())
            token = file.read().strip()
    except OSError as error:
        raise InputError(
            f"The secret {path} cannot be read: {error.strerror}.",
            next_step="Is a controller running with this state directory?",
        ) from None
    if told.st_uid != os.geteuid():
        raise InputError(f"The secret {path} belongs to another user.", next_step=f"Run: rm {path}")
    if told.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"The secret {path} can be read by others.", next_step=f"Run: chmod 600 {path}")
    if not token:
        raise InputError(f"The secret {path} is empty.", next_step=f"Run: rm {path}")
    return token
