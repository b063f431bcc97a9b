"""Credentials of agents: each is good for one node and one pilot, and for reporting on them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import queue
import stat
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from offcut.errors import InputError, StoreError
from offcut.wire import tokens

#: A credential begins with this; the number is raised when the format changes.
_FORM = "offcut1"
#: A longer credential is not valid: names of nodes and pilots are short.
_LONGEST = 2048


@dataclass(frozen=True, slots=True)
class Identity:
    """The agent that a credential is for: that of one pilot on a node."""

    node: str
    pilot: str


class Credentials:
    """Makes and checks the credentials of one controller's agents.

    A credential names its node and pilot and carries a MAC of them under `key`, so that nothing needs to be stored to
    check one, and agents of an earlier controller are accepted. Each is in a file of mode 0600 in
    `directory`, where its agent reads it.
    """

    def __init__(self, key: str, directory: Path) -> None:
        self._key = key.encode()
        #: Pilots whose holds are over, for the thread that removes their credentials; None before the first.
        self._ended: queue.SimpleQueue[str] | None = None
        self.directory = directory

    @classmethod
    def load(cls, key_file: Path, directory: Path) -> Credentials:
        """Return the credentials under the key in `key_file`, which is made if it is missing.

        StoreError, InputError.
        """
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            told = directory.lstat()
        except OSError as error:
            raise StoreError(
                f"The directory {directory} cannot be made: {error.strerror}.", next_step="Choose another --state."
            ) from None
        if not stat.S_ISDIR(told.st_mode) or told.st_uid != os.geteuid() or told.st_mode & 0o077:
            raise InputError(
                f"{directory} is not a directory that only you can open.", next_step=f"Run: rm -r {directory}"
            )
        return cls(tokens.create(key_file), directory)

    def file(self, pilot: str) -> Path:
        """Return the path at which the pilot's agent finds its credential."""
        return self.directory / f"{pilot}.token"

    def issue(self, node: str, pilot: str) -> Path:
        """Write the credential of a hold, and return its file. StoreError if it cannot be written."""
        path = self.file(pilot)
        tokens.write(path, self.of_identity(Identity(node, pilot)))
        return path

    def withdraw(self, pilot: str) -> None:
        """Remove the credential of a hold that is over."""
        with suppress(OSError):
            self.file(pilot).unlink(missing_ok=True)

    def withdraw_later(self, pilot: str) -> None:
        """Remove the credential of a hold that is over, in a thread: its file system may hang. Returns at once."""
        if self._ended is None:
            self._ended = queue.SimpleQueue()
            threading.Thread(target=self._withdraw_all, args=(self._ended,), name="credentials", daemon=True).start()
        self._ended.put(pilot)

    def _withdraw_all(self, ended: queue.SimpleQueue[str]) -> None:
        while True:
            self.withdraw(ended.get())

    def keep_only(self, pilots: Iterable[str]) -> None:
        """Remove the credentials of all other holds."""
        kept = {self.file(pilot) for pilot in pilots}
        for path in self.directory.glob("*.token"):
            if path not in kept:
                path.unlink(missing_ok=True)

    def of_identity(self, identity: Identity) -> str:
        named = ".".join((_FORM, _encode(identity.node), _encode(identity.pilot)))
        return f"{named}.{self._mac(named)}"

    def check(self, token: str) -> Identity | None:
        """Return whose credential it is; None if it is not one of this controller's."""
        if len(token) > _LONGEST or not token.isascii():
            return None
        named, _, mac = token.rpartition(".")
        # Compared first, in a time that does not depend on how much of it is right.
        if not hmac.compare_digest(mac, self._mac(named)):
            return None
        form, node, pilot = named.split(".")
        return Identity(_decode(node), _decode(pilot)) if form == _FORM else None

    def _mac(self, named: str) -> str:
        return hmac.new(self._key, named.encode(), hashlib.sha256).hexdigest()


def _encode(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return base64.urlsafe_b64decode(text).decode()
