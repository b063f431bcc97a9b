"""The lease on a shared directory: one controller at a time uses it, whichever hosts they are on.

A file lock is not enough between hosts: on many network file systems each host has its own. So the holder writes a
file again and again, and another controller takes the directory only if the holder was a process of this host and has
died, or if nothing has been written for a while. The one that waits measures that while; clocks are not compared.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import structlog

from offcut.errors import OffcutError, ServiceError, StoreError
from offcut.wire.ownership import read_own

_log = structlog.get_logger()

RENEW_S = 5.0
#: A lease that has not been renewed for this long may be taken over.
STALE_S = 30.0
#: If controllers of several hosts take it over at once, the last of them has written after this.
_SETTLE_S = 1.0


class LeaseLost(ServiceError):
    """Another controller has taken the directory over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A controller as its lease names it. `host`, `machine`, `boot` and `namespace` say where `pid` is valid."""

    id: str
    host: str
    machine: str
    boot: str
    namespace: int
    pid: int
    #: When the process began, in the kernel's ticks: process ids are reused.
    started: int
    #: Grows with every renewal.
    count: int = 0
    #: When it was last renewed, by the holder's clock; for people.
    renewed_s: float = 0.0


def ourselves() -> Holder:
    """Return this process as a new holder."""
    return Holder(
        id=secrets.token_hex(16),
        host=socket.gethostname(),
        machine=_line("/etc/machine-id"),
        boot=_line("/proc/sys/kernel/random/boot_id"),
        namespace=os.stat("/proc/self/ns/pid").st_ino,
        pid=os.getpid(),
        started=_started(os.getpid()) or 0,
    )


def judge(found: Holder | None, us: Holder, started: Callable[[int], int | None]) -> Literal["free", "held", "watch"]:
    """Return whether a lease may be taken at once, not at all, or if it is not renewed while it is watched.

    `started` returns when a process of this machine began, None if no process has that id.
    """
    if found is None:
        return "watch"  # it is being written, or it is damaged
    if (found.host, found.machine) != (us.host, us.machine):
        return "watch"
    if found.boot != us.boot:
        return "free"  # it is from before a reboot
    if found.namespace != us.namespace:
        return "watch"  # the process is in a container, where its id is that of another process here
    return "held" if started(found.pid) == found.started else "free"


class Lease:
    """The lease file at `path`. Reading and writing it may hang as long as the file system does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._us = ourselves()
        self._held = False
        #: When the last renewal that succeeded began, by the monotonic clock.
        self._renewed_s = time.monotonic()

    def acquire(self) -> None:
        """Acquire the lease; may wait for STALE_S.

        Raises:
            StoreError: A live controller has it.
        """
        try:
            if not self._create() and not self._acquire_from_this_host():
                self._acquire_from_another_host()
        except OSError as error:
            raise StoreError(
                f"The lease {self._path} cannot be taken: {error.strerror}.", next_step="Choose another with --share."
            ) from None
        self._held = True

    def _acquire_from_this_host(self) -> bool:
        """Acquire the lease of a process of this host that is gone. Return False if that cannot be done at once.

        A file lock keeps the other controllers of this host out meanwhile. One of another host that has watched the
        lease until it was stale may write it at this moment: the first renewal finds that.
        """
        lock = self._path.with_name(f"{self._path.name}.lock")
        with os.fdopen(os.open(lock, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError:  # the file system has no locks
                return False
            if self._look()[1] != "free":
                return False
            self._write()
            return True

    def _acquire_from_another_host(self) -> None:
        """Acquire the lease if it is not renewed while it is watched, or if its holder has ended."""
        found, verdict = self._look()
        if verdict == "watch":
            who = found.host if found is not None else "an unknown host"
            _log.info("lease_watched", held_by=who, for_s=STALE_S, file=str(self._path))
            verdict = self._watch(found)
        if verdict == "held":
            raise self._refusal(found)
        self._write()
        time.sleep(_SETTLE_S)
        now = self._read()
        if now is None or now.id != self._us.id:
            raise self._refusal(now)

    async def keep(self) -> None:
        """Renew the lease until cancelled, in a thread. LeaseLost when another controller has taken it over."""
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[None] = loop.create_future()
        ended = threading.Event()

        def end(error: Exception) -> None:
            if not lost.done():
                lost.set_exception(error)

        def renew() -> None:
            wait_s = min(_SETTLE_S, RENEW_S)
            while not ended.wait(wait_s):
                wait_s = RENEW_S
                try:
                    self.renew()
                except OSError as error:
                    _log.warning("lease_not_renewed", error=str(error))
                except Exception as error:
                    with suppress(RuntimeError):  # the loop is closed
                        loop.call_soon_threadsafe(end, error)
                    return

        threading.Thread(target=renew, name="lease", daemon=True).start()
        try:
            await lost
        finally:
            ended.set()

    def renew(self) -> None:
        """Renew the lease once. Raises LeaseLost if another controller has it."""
        found = self._read()
        if found is not None and found.id != self._us.id:
            self._held = False
            raise LeaseLost(
                f"The controller on {found.host} (process {found.pid}) has taken {self._path.parent} over.",
                next_step="It goes on with what is held there; this one has released nothing.",
            )
        self._write()

    @property
    def certain(self) -> bool:
        """Whether no other controller can have taken the lease over: it was renewed in time."""
        return time.monotonic() - self._renewed_s < STALE_S - RENEW_S

    def drop(self) -> None:
        """Give the lease up, so that the next controller need not wait. Another controller's lease stays as it is."""
        with suppress(OSError, OffcutError):
            found = self._read()
            if self._held and found is not None and found.id == self._us.id:
                self._path.unlink()
        self._held = False

    def _look(self) -> tuple[Holder | None, Literal["free", "held", "watch"]]:
        found = self._read()
        return found, judge(found, self._us, _started)

    def _watch(self, found: Holder | None) -> Literal["free", "held"]:
        until_s = time.monotonic() + STALE_S
        while time.monotonic() < until_s:
            time.sleep(min(0.5, STALE_S / 10))
            if not self._path.exists():
                return "free"
            if self._read() != found:
                return "held"
        return "free"

    def _refusal(self, found: Holder | None) -> StoreError:
        who = f"the controller on {found.host} (process {found.pid})" if found is not None else "another controller"
        return StoreError(
            f"{self._path.parent} is used by {who}.",
            next_step="Use that one, end it, or start this one with another --share.",
        )

    def _read(self) -> Holder | None:
        """Return who has the lease; None if it cannot be read."""
        try:
            return Holder(**json.loads(read_own(self._path)))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def _create(self) -> bool:
        """Create the file, unless it exists."""
        self._renewed_s = time.monotonic()
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(self._next()), file)
        return True

    def _write(self) -> None:
        began_s = time.monotonic()
        unborn = self._path.with_name(f".{self._path.name}.{self._us.id}")
        with os.fdopen(os.open(unborn, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(asdict(self._next()), file)
        unborn.replace(self._path)
        self._renewed_s = began_s

    def _next(self) -> Holder:
        self._us = replace(self._us, count=self._us.count + 1, renewed_s=round(time.time(), 3))
        return self._us


def _line(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text().strip()
    return ""


def _started(pid: int) -> int | None:
    """Return when a process began, in the kernel's ticks; None if no process has that number."""
    with suppress(OSError, IndexError, ValueError):
        # After the name, which may hold anything; proc(5).
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    return None
