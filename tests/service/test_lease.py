"""A lease keeps a controller of another host out of a directory that both can see."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from controlled import Controlled

from offcut.errors import StoreError
from offcut.service import lease as leases
from offcut.service import lease_watch
from offcut.service.lease import Holder, Lease, LeaseLost, judge, ourselves

US = ourselves()
ELSEWHERE = replace(US, id="another", host="login2", machine="another", boot="another", pid=1)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "STALE_S", 1.0)
    monkeypatch.setattr(leases, "RENEW_S", 0.05)
    monkeypatch.setattr(leases, "_SETTLE_S", 0.1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lease.json"


def leave(path: Path, holder: Holder) -> None:
    path.write_text(json.dumps(asdict(holder)))
    path.chmod(0o600)


def began(pid: int) -> int | None:
    """Stand in for a machine on which process 7 has run since 70, and no other process."""
    return {7: 70}.get(pid)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (replace(US, pid=7, started=70), "held"),
        (replace(US, pid=7, started=60), "free"),  # its number is another's now
        (replace(US, pid=8, started=70), "free"),
        (replace(US, pid=7, started=70, boot="before"), "free"),
        (replace(US, pid=8, started=70, namespace=1), "watch"),  # a container
        (replace(US, pid=8, started=70, machine="another"), "watch"),  # both are called localhost
        (ELSEWHERE, "watch"),
        (None, "watch"),
    ],
)
def test_leases_that_may_be_taken(found: Holder | None, verdict: str) -> None:
    assert judge(found, US, began) == verdict


def test_a_free_directory_is_taken_and_left(path: Path) -> None:
    lease = Lease(path)
    lease.acquire()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(StoreError, match=f"is used by the controller on .* .process {os.getpid()}."):
        Lease(path).acquire()
    lease.drop()
    assert not path.exists()
    Lease(path).acquire()


def test_a_lease_of_a_process_of_this_host_that_is_gone_is_taken_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "STALE_S", 1e6)
    monkeypatch.setattr(leases, "_SETTLE_S", 1e6)
    leave(path, replace(US, id="another", started=US.started + 1))
    Lease(path).acquire()
    with pytest.raises(StoreError, match="is used by"):
        Lease(path).acquire()


def test_of_many_of_one_host_who_take_the_lease_of_a_process_that_is_gone_one_has_it(path: Path) -> None:
    leave(path, replace(US, id="another", started=US.started + 1))
    outcomes: list[str] = []
    barrier = threading.Barrier(8)

    def take() -> None:
        barrier.wait()
        try:
            Lease(path).acquire()
            outcomes.append("has it")
        except StoreError:
            outcomes.append("refused")

    takers = [threading.Thread(target=take) for _ in range(8)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert sorted(outcomes) == ["has it", *["refused"] * 7]


def test_without_file_locks_the_lease_is_taken_once_it_has_settled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(leases.fcntl, "flock", no_locks)
    leave(path, replace(US, id="another", started=US.started + 1))
    began_s = time.monotonic()
    Lease(path).acquire()
    assert time.monotonic() - began_s >= leases._SETTLE_S


def test_a_lease_of_another_host_is_taken_once_it_is_stale(path: Path) -> None:
    # Its clock is a day ahead: that proves nothing.
    leave(path, replace(ELSEWHERE, renewed_s=time.time() + 86_400))
    began_s = time.monotonic()
    Lease(path).acquire()
    assert time.monotonic() - began_s >= leases.STALE_S


def test_a_lease_that_is_renewed_elsewhere_is_not_taken(path: Path) -> None:
    leave(path, ELSEWHERE)
    ended = threading.Event()

    def renew() -> None:
        count = 0
        while not ended.wait(0.05):
            count += 1
            unborn = path.with_suffix(".new")
            leave(unborn, replace(ELSEWHERE, count=count))
            unborn.replace(path)

    other = threading.Thread(target=renew)
    other.start()
    try:
        with pytest.raises(StoreError, match="is used by the controller on login2") as refusal:
            Lease(path).acquire()
        assert "--share" in refusal.value.next_step
    finally:
        ended.set()
        other.join()


def test_of_two_who_take_a_stale_lease_at_once_one_has_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(path, ELSEWHERE)
    monkeypatch.setattr(leases, "_SETTLE_S", 1.0)
    outcomes: list[str] = []

    def take() -> None:
        try:
            Lease(path).acquire()
            outcomes.append("has it")
        except StoreError:
            outcomes.append("refused")

    takers = [threading.Thread(target=take) for _ in range(2)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert outcomes.count("has it") == 1


def test_a_damaged_lease_is_watched_and_taken(path: Path) -> None:
    path.write_text("{")
    path.chmod(0o600)
    Lease(path).acquire()


def test_a_controller_that_is_taken_over_is_told(path: Path) -> None:
    async def scenario() -> None:
        lease = Lease(path)
        lease.acquire()
        keeping = asyncio.create_task(lease.keep())
        first = json.loads(path.read_text())["count"]
        async with asyncio.timeout(60):
            while json.loads(path.read_text())["count"] <= first + 2:
                await asyncio.sleep(0.01)
        unborn = path.with_suffix(".new")
        leave(unborn, ELSEWHERE)
        unborn.replace(path)
        async with asyncio.timeout(60):
            with pytest.raises(LeaseLost, match=r"The controller on login2 .* has taken .* over"):
                await keeping
        lease.drop()
        assert json.loads(path.read_text())["id"] == "another", "another's lease is left alone"

    asyncio.run(scenario())


def test_a_file_system_that_hangs_delays_nothing_else(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = threading.Event()

    async def scenario() -> None:
        lease = Lease(path)
        lease.acquire()
        monkeypatch.setattr(lease, "_read", lambda: hanging.wait() and None)
        keeping = asyncio.create_task(lease.keep())
        for _ in range(20):
            await asyncio.sleep(0.01)  # the loop goes on
        keeping.cancel()

    asyncio.run(scenario())
    hanging.set()


def test_nothing_is_claimed_while_the_file_system_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(leases.time, "monotonic", clock)
    monkeypatch.setattr(lease_watch, "LOOK_S", 0.0)

    async def scenario() -> None:
        it = Controlled(tmp_path, monkeypatch)
        lease = Lease(it.paths.lease)
        lease.acquire()
        watching = asyncio.create_task(lease_watch.watch(lease, it.controller))

        async def looked() -> bool:
            for _ in range(5):
                await asyncio.sleep(0)
            return bool(it.state.lease_uncertain)

        assert not await looked()
        clock.now_s += leases.STALE_S
        assert await looked()
        lease.renew()
        assert not await looked()
        watching.cancel()

    asyncio.run(scenario())


class Clock:
    """The monotonic clock, which the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s
