"""Members of a generation as real processes with a real gloo group, without agents and controller."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.multiprocessing

from offcut.membership.generation import Generation
from offcut.torch.membership.process_group import Group
from rendezvous import LIMIT_S, shared_store


class Changes:
    """Stands in for a link: what it tells its worker."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.stale = False

    def declare_stale(self) -> None:
        with self.changed:
            self.stale = True
            self.changed.notify_all()


Task = Callable[[Group, Changes], Any]


#: Groups share a store.
_jobs = itertools.count()


def _member(task: Task, rank: int, membership: Generation, pipe: Any) -> None:
    torch.set_num_threads(1)
    changes = Changes()
    group = Group(membership, rank, changes.changed, lambda: changes.stale)
    # As bytes, not in shared memory: the member is gone when they are read.
    pipe.send(task(group, changes))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker of xdist run all tests with members: the server that forks these takes 4 seconds to start."""
    for item in items:
        if "members" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("members"))


@pytest.fixture
def members() -> Callable[[int, Task], list[Any]]:
    """Return `run(world, task)`, which runs `task(group, changes)` in `world` processes; results by rank."""

    def run(world: int, task: Task) -> list[Any]:
        context = torch.multiprocessing.get_context("fork")
        job = f"group-{os.getpid()}-{next(_jobs)}"
        names = tuple(f"n{i}#1:0" for i in range(world))
        membership = Generation(1, names, job=job, **shared_store().meeting_point(job, 1))
        running = []
        for rank in range(world):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_member, args=(task, rank, membership, theirs), daemon=True)
            process.start()
            theirs.close()
            running.append((process, ours))
        results = []
        for process, pipe in running:
            results.append(pipe.recv())
            process.join(LIMIT_S)
        return results

    return run
