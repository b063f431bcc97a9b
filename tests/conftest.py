"""Fixtures for every test. No process that a test starts outlives the tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from offcut.process.parent_death import die_with_parent
from reaper import ENV_MARK, marked

#: For what was told to end and is still at it.
_ENDING_S = 90.0
_HELPERS = re.compile(r"multiprocessing\.(resource_tracker|forkserver)")


def pytest_configure() -> None:
    """Mark this process and start its reaper; forks of it, which have no environment of their own, die with it."""
    mark = f"{os.environ.get(ENV_MARK, '')}/{uuid.uuid4().hex[:12]}"
    subprocess.Popen(
        [sys.executable, "-IS", str(Path(__file__).with_name("reaper.py")), str(os.getpid()), mark],
        env={},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.environ[ENV_MARK] = mark
    # What is started under nohup ignores it, and so would the controllers that tests start.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    parents: list[int] = []
    os.register_at_fork(
        before=lambda: parents.append(os.getpid()),
        after_in_parent=parents.pop,
        after_in_child=lambda: die_with_parent(parents[-1]),
    )


@pytest.fixture(scope="session", autouse=True)
def nothing_left() -> Iterator[None]:
    """No process that a test has started is there after the last test."""
    yield
    give_up_s = time.monotonic() + _ENDING_S
    while left := _commands(marked(os.environ[ENV_MARK])):
        assert time.monotonic() < give_up_s, f"left by a test: {left}"
        time.sleep(0.1)


def _commands(pids: list[int]) -> list[str]:
    found = []
    for pid in pids:
        with suppress(psutil.Error):
            found.append(" ".join(psutil.Process(pid).cmdline()))
    # Python's own helpers, and what they have forked, stay until we end.
    return [command for command in found if command and not _HELPERS.search(command)]


@pytest.fixture(scope="session")
def shared() -> Path:
    place = Path(os.environ.get("OFFCUT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not place.is_dir():
        pytest.skip(f"the reference data is not here ({place}); set OFFCUT_SHARED")
    return place
