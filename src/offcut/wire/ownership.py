"""Checks who owns a directory or file: what another user can write to is not trusted."""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from offcut.errors import InputError, StoreError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def own_directory(path: Path, kind: str, option: str, *, used: bool = False) -> None:
    """Make `path` a directory of this user that no other user may open; an existing one is kept if it is that.

    One that others may read is closed to them if offcut uses it already (`used`, or its lock is there) or nothing is in
    it. StoreError otherwise: `kind` says what it is for, `option` how another is chosen.
    """

    def refuse(why: str, next_step: str = f"Choose another with {option}.") -> StoreError:
        return StoreError(f"The {kind} {path} {why}.", next_step=next_step)

    try:
        with suppress(FileNotFoundError):
            # A user who made this link can change it.
            link = os.lstat(path)
            if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, os.geteuid()):
                raise refuse(f"is a link that belongs to {_name(link.st_uid)}")
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        told = os.stat(path)
        if told.st_uid != os.geteuid():
            raise refuse(f"belongs to {_name(told.st_uid)}, not to {_name(os.geteuid())} who runs this")
        if told.st_mode & _OTHERS_WRITE:
            raise refuse("can be written by other users", f"See that nothing in it is theirs, then: chmod 700 {path}")
        entries = list(os.scandir(path))
        for entry in entries:
            if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                raise refuse(f"holds {entry.name}, which belongs to another user", f"Remove it, or choose {option}.")
        if told.st_mode & _OTHERS:
            if entries and not used and not any(entry.name == "lock" for entry in entries):
                raise refuse("can be read by other users, and holds other things", f"Run: chmod 700 {path}")
            path.chmod(0o700)
        for parent in path.resolve().parents:
            if os.stat(parent).st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
                raise refuse(f"lies in {parent}, in which every user can replace it")
    except OSError as error:
        raise StoreError(
            f"The {kind} {path} cannot be written: {error.strerror}.", next_step=f"Choose another with {option}."
        ) from None


def own_part(path: Path, kind: str, option: str) -> None:
    """Do the same for a directory inside one of ours. It may be a link, because only we could have made that."""
    own_directory(path.resolve(), kind, option, used=True)


def read_own(path: Path) -> str:
    """Return a file's text. OSError if it cannot be read, InputError if another user could have written it."""
    with path.open() as file:
        told = os.fstat(file.fileno())
        text = file.read()
    if told.st_uid != os.geteuid() or told.st_mode & _OTHERS_WRITE:
        raise InputError(f"{path} could have been written by another user.", next_step=f"Run: rm {path}")
    return text


def check_socket(path: Path) -> None:
    """Raise InputError if another user listens at `path`; root may connect to any user's."""
    with suppress(OSError):
        owner = os.stat(path).st_uid
        if owner != os.geteuid() and os.geteuid() != 0:
            raise InputError(f"{path} belongs to {_name(owner)}, who would receive what is sent.")


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
