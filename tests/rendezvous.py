"""A rendezvous store for tests of members, in a process of its own, because a process that forks must not have threads.

It is forked from a server that has torch imported and no threads either, and ends with it; the server ends with the
test process, however that ends.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from offcut.process.parent_death import die_with_parent
from offcut.service import rendezvous_server
from offcut.wire import rendezvous, tokens

#: For anything to happen that must happen; a loaded machine is slow.
LIMIT_S = 180.0


#: What the server has imported besides.
_preloaded: set[str] = set()


def preload(*modules: str) -> None:
    """Let the processes that are forked from now on have `modules` imported, by a server that replaces the old one.

    The old one's processes end with it, and so does the shared store: there must be no Cluster.
    """
    if not _preloaded.issuperset(modules):
        _preloaded.update(modules)
        if shared_store.cache_info().currsize:
            # As long as it runs, the server that has forked it does not end.
            os.kill(shared_store().pid, signal.SIGKILL)
            shared_store.cache_clear()
        forkserver._forkserver._stop()


def fork_server() -> Any:
    """Return the context of processes that have torch imported and no threads."""
    context = multiprocessing.get_context("forkserver")
    # What every training needs in the end: the import of torch._dynamo alone takes half a second of each worker.
    everything = "pytest numpy.random sklearn.datasets torch._dynamo torch.distributed.checkpoint offcut.torch"
    context.set_forkserver_preload([*everything.split(), *sorted(_preloaded)])
    return context


@dataclass(frozen=True)
class Store:
    address: str
    master: str
    pid: int

    def secret(self, job: str, generation: int) -> str:
        """Return what the members of that generation show."""
        return rendezvous.generation_secret(self.master, job, generation)

    def meeting_point(self, job: str, generation: int) -> dict[str, str]:
        """Return the fields of a generation's message that say where its members meet, and as whom."""
        return {"store": self.address, "secret": self.secret(job, generation)}


@cache
def shared_store() -> Store:
    """Return a store that lives as long as this process; jobs share it under names of their own."""
    ends = ExitStack()
    atexit.register(ends.close)
    return ends.enter_context(running_store())


@contextmanager
def running_store() -> Iterator[Store]:
    """Yield a store that ends after the block."""
    place = Path(tempfile.mkdtemp(prefix="offcut-store-"))
    told, secret = place / "address", place / "secret"
    master = tokens.create(secret)
    process = fork_server().Process(target=_keep, args=(str(told), str(secret)), daemon=True)
    process.start()
    try:
        end_s = time.monotonic() + LIMIT_S
        while not told.exists():
            assert process.is_alive()
            assert time.monotonic() < end_s
            time.sleep(0.005)
        yield Store(json.loads(told.read_text())["address"], master, process.pid)
    finally:
        process.kill()
        process.join()
        shutil.rmtree(place)


def _keep(address_file: str, secret_file: str) -> None:
    die_with_parent(os.getppid())
    sys.argv = ["store", address_file, secret_file, "--linger-s", "1e9"]  # there is no controller
    rendezvous_server.main()
