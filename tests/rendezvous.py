"""A rendezvous store for tests of members, in a process of its own: whoever forks members must not have its threads.

It is forked from a server that has torch imported and no threads either, and ends with it; the server ends with the
test process, however that ends.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import IO, Any

from offcut.wire.forkserver import die_with_parent

#: For anything to happen that must happen; a loaded machine is slow.
LIMIT_S = 60.0

_locks: list[IO[str]] = []


def fork_server() -> Any:
    """The context of processes that have torch imported and no threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "offcut.torch", "offcut.torch.store", "torch.distributed.checkpoint"])
    return context


@cache
def store_address() -> str:
    """Where a store listens that lives as long as this process; jobs share it under names of their own."""
    place = Path(tempfile.mkdtemp(prefix="offcut-store-"))
    atexit.register(shutil.rmtree, place)
    # The store ends some time after nobody has held its lock; this process holds it to its end.
    _locks.append((place / "lock").open("w"))
    fcntl.flock(_locks[-1], fcntl.LOCK_EX)
    process = fork_server().Process(target=_keep, args=(str(place / "address"), str(place / "lock")), daemon=True)
    process.start()
    end_s = time.monotonic() + LIMIT_S
    while not (place / "address").exists():
        assert process.is_alive()
        assert time.monotonic() < end_s
        time.sleep(0.005)
    address: str = json.loads((place / "address").read_text())["address"]
    return address


def _keep(address_file: str, lock_file: str) -> None:
    from offcut.torch import store

    die_with_parent(os.getppid())
    sys.argv = ["store", address_file, lock_file]
    store.main()
