"""Every process with the mark of a job's workers is ended, in any session, and no other process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from offcut.agent.escaped_processes import kill_marked

NAME = "OFFCUT_TEST_MARK"


@pytest.fixture
def sleeper() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started = []

    def start(mark: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "print(flush=True); import time; time.sleep(1000)"]
        process = subprocess.Popen(
            command, env={**os.environ, NAME: mark}, start_new_session=True, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_only_the_marked_are_ended(sleeper: Callable[..., subprocess.Popen[bytes]]) -> None:
    ours, another, longer = sleeper("/jobs/a#7"), sleeper("/jobs/a#8"), sleeper("/jobs/a#77")
    assert kill_marked(NAME, "/jobs/a#7") >= 1
    assert ours.wait(30) == -signal.SIGKILL
    assert kill_marked(NAME, "/jobs/a#7") == 0
    assert another.poll() is None
    assert longer.poll() is None
