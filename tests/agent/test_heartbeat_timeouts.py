"""A silent worker that is stopped is given up sooner than one that is only silent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from offcut.agent.heartbeat_timeouts import HeartbeatTimeouts, is_stopped
from offcut.process.unix_socket import peer_pid

LIMITS = HeartbeatTimeouts(stopped_s=2.0, any_s=5.0)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


def test_a_stopped_process_is_told_from_one_that_waits(sleeper: subprocess.Popen[bytes]) -> None:
    assert not is_stopped(sleeper.pid)
    stop(sleeper)
    assert is_stopped(sleeper.pid)
    sleeper.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, sleeper.pid, os.WCONTINUED)
    assert not is_stopped(sleeper.pid)


def test_a_process_that_has_ended_is_not_stopped() -> None:
    assert not is_stopped(2**22 + 1)  # above the kernel's largest


def test_a_process_name_that_looks_like_a_state_is_read_as_a_name() -> None:
    renamed = "import ctypes; ctypes.CDLL(None).prctl(15, b') T 1 (', 0, 0, 0); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", renamed], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert not is_stopped(process.pid)
        process.kill()


def test_a_worker_that_is_only_silent_is_given_more_time(sleeper: subprocess.Popen[bytes]) -> None:
    assert not LIMITS.frozen(4.9, sleeper.pid)
    assert LIMITS.frozen(5.1, sleeper.pid)
    stop(sleeper)
    assert not LIMITS.frozen(1.9, sleeper.pid)
    assert LIMITS.frozen(2.1, sleeper.pid)


def test_the_process_at_the_other_end() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_pid(ours) == os.getpid()
