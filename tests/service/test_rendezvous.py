"""The controller keeps a rendezvous store that has proved to be its own, and harms no other process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from offcut.errors import ClusterError
from offcut.service import rendezvous
from offcut.service.paths import StatePaths
from offcut.service.rendezvous import Rendezvous


@asynccontextmanager
async def kept(root: Path, *, listen: str = "127.0.0.1", end: bool = True):
    """A controller's store, once it answers."""
    keeper = Rendezvous(StatePaths(root), lambda: None, listen=listen)
    task = asyncio.create_task(keeper.keep())
    try:
        await until(lambda: keeper.address is not None or task.done())
        yield keeper
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, ClusterError):
            await task
        if end:
            keeper.end()
        else:  # as when the controller is killed
            keeper._drop()


async def until(holds: Callable[[], Any], patience_s: float = 60.0) -> None:
    async with asyncio.timeout(patience_s):
        while not holds():
            await asyncio.sleep(0.02)


def told(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(StatePaths(root).rendezvous.read_text())
    return found


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(100):
            await scenario()

    asyncio.run(limited())


def test_a_restarted_controller_adopts_its_store_and_ends_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with kept(tmp_path, end=False) as first:
            store = told(tmp_path)
        async with kept(tmp_path) as second:
            assert told(tmp_path) == store
            assert second.address == store["address"]
            assert second.secret("job", 1) == first.secret("job", 1)
        await until(lambda: gone(store["pid"]))

    run(scenario)


@pytest.mark.parametrize("port_taken", [True, False])
def test_another_process_is_neither_adopted_nor_ended(tmp_path: Path, port_taken: bool) -> None:
    """After a reboot, say: another has the port, and another the number, of the store that was."""

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other, subprocess.Popen(["sleep", "600"]) as innocent:
            try:
                port = other.getsockname()[1]
                if not port_taken:
                    other.close()
                record = {"address": f"127.0.0.1:{port}", "pid": innocent.pid}
                StatePaths(tmp_path).rendezvous.write_text(json.dumps(record))
                monkey.setattr(rendezvous, "_ANSWER_S", 0.2)
                async with kept(tmp_path) as keeper:
                    assert keeper.address != record["address"]
                    assert told(tmp_path)["pid"] != innocent.pid
                assert innocent.poll() is None
            finally:
                innocent.kill()

    with pytest.MonkeyPatch.context() as monkey:
        run(scenario)


def test_a_store_with_another_secret_is_not_adopted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with kept(tmp_path, end=False):
            StatePaths(tmp_path).rendezvous_secret.unlink()
            old = told(tmp_path)
        async with kept(tmp_path) as second:
            assert second.address != old["address"]
            await until(lambda: gone(old["pid"]))  # for it is not named any more

    run(scenario)


def test_a_store_that_members_reach_under_another_name_is_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with kept(tmp_path, end=False):
            old = told(tmp_path)
        async with kept(tmp_path, listen="localhost") as second:
            assert second.address is not None
            assert second.address.startswith("localhost:")
            await until(lambda: gone(old["pid"]))

    run(scenario)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_store_that_dies_or_freezes_is_replaced(tmp_path: Path, number: signal.Signals) -> None:
    async def scenario() -> None:
        async with kept(tmp_path) as keeper:
            old = told(tmp_path)
            monkey.setattr(rendezvous, "_ANSWER_S", 2.0)
            os.kill(old["pid"], number)
            await until(lambda: keeper.address not in (None, old["address"]))
            assert gone(old["pid"]), "it was this controller's own"

    with pytest.MonkeyPatch.context() as monkey:
        run(scenario)


def test_a_store_that_cannot_be_started_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_process(*_: Any, **__: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(rendezvous.subprocess, "Popen", no_process)

    async def scenario() -> None:
        keeper = Rendezvous(StatePaths(tmp_path), lambda: None, listen="127.0.0.1")
        with pytest.raises(ClusterError, match="could not be started: Resource temporarily unavailable"):
            await keeper.keep()

    run(scenario)


def test_a_store_that_is_not_named_any_more_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with kept(tmp_path, end=False):
            pid = told(tmp_path)["pid"]
            StatePaths(tmp_path).rendezvous.unlink()
        await until(lambda: gone(pid))

    run(scenario)


def test_the_secret_is_in_a_file_of_its_owner_and_in_no_argument_list(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with kept(tmp_path):
            secret = StatePaths(tmp_path).rendezvous_secret
            assert secret.stat().st_mode & 0o777 == 0o600
            assert secret.read_text().strip() not in " ".join(psutil.Process(told(tmp_path)["pid"]).cmdline())

    run(scenario)
