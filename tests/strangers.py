"""Another user of the machine: a real one, because the kernel decides what that user may do."""

from __future__ import annotations

import encodings.idna  # noqa: F401 - for addresses; later, as another user, it may not be readable
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import pytest

from offcut.process.parent_death import die_with_parent

NOBODY = 65534


def _become(task: Callable[..., Any], connection: Connection, arguments: tuple[Any, ...]) -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    die_with_parent(os.getppid())  # the kernel forgets that with the user
    os.chdir("/")
    task(connection, *arguments)


@contextmanager
def stranger(task: Callable[..., Any], *arguments: Any) -> Iterator[Connection]:
    """Run `task(connection, *arguments)` as the Unix user nobody; yields the other end. It ends with the block."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_become, args=(task, theirs, arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        process.kill()
        process.join()
        ours.close()
