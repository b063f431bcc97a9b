"""Background tasks: one that fails is restarted and shown; one that everything depends on ends the controller."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from offcut.errors import ClusterError, OffcutError, ServiceError
from offcut.service import rendezvous, supervise
from offcut.service.paths import StatePaths
from offcut.service.supervise import Tasks


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(supervise, "LONGEST_WAIT_S", 0.02)


@pytest.fixture
def short_dir() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="offcut-test-"))
    yield root
    shutil.rmtree(root)


def test_a_task_that_fails_is_started_again_and_shown_with_its_last_error() -> None:
    async def scenario() -> None:
        tasks, runs, well = Tasks(), [], asyncio.Event()

        async def fails_three_times() -> None:
            runs.append(len(runs))
            if len(runs) <= 3:
                raise OSError(24, f"Too many open files, time {len(runs)}")
            well.set()
            await asyncio.Event().wait()

        tasks.keep("store", fails_three_times)
        async with asyncio.timeout(30):
            await well.wait()
        (shown,) = tasks.shown()
        assert (shown["name"], shown["state"], shown["failures"]) == ("store", "running", 3)
        assert "time 3" in shown["last_error"]
        assert shown["last_failure_s"] is not None
        assert not shown["well"], "it has run for less than a minute since"
        assert not tasks.fatal.done()
        await tasks.close()

    asyncio.run(scenario())


def test_a_task_that_returns_is_started_again_too() -> None:
    async def scenario() -> None:
        tasks, runs, twice = Tasks(), [], asyncio.Event()

        async def returns() -> None:
            runs.append(1)
            if len(runs) == 2:
                twice.set()

        tasks.keep("short", returns)
        async with asyncio.timeout(30):
            await twice.wait()
        assert tasks.shown()[0]["last_error"] == "it ended"
        await tasks.close()

    asyncio.run(scenario())


def test_the_rendezvous_store_is_started_once_processes_can_be_started_again(
    monkeypatch: pytest.MonkeyPatch, short_dir: Path
) -> None:
    real, tries = subprocess.Popen, itertools.count()

    def flaky(*given: Any, **options: Any) -> Any:
        if next(tries) < 2:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return real(*given, **options)

    monkeypatch.setattr(rendezvous.subprocess, "Popen", flaky)

    async def scenario() -> None:
        paths = StatePaths(short_dir)
        paths.prepare()
        store = rendezvous.Rendezvous(paths, lambda: None, listen="127.0.0.1")
        tasks = Tasks()
        tasks.keep("rendezvous", store.keep)
        try:
            async with asyncio.timeout(60):
                while store.address is None:
                    await asyncio.sleep(0.01)
            (shown,) = tasks.shown()
            assert shown["failures"] == 2
            assert os.strerror(errno.EAGAIN) in shown["last_error"]
        finally:
            await tasks.close()
            store.end()

    asyncio.run(scenario())


async def end_of(tasks: Tasks) -> OffcutError:
    async with asyncio.timeout(30):
        return await tasks.fatal


def test_a_task_that_everything_depends_on_is_fatal_with_a_sentence() -> None:
    async def scenario() -> None:
        async def raises() -> None:
            raise RuntimeError("socket gone")

        async def returns() -> None:
            pass

        async def says_why() -> None:
            raise ClusterError("The local cluster has gone.")

        said = []
        for body in (raises, returns, says_why):
            tasks = Tasks()
            tasks.need("api", body)
            error = await end_of(tasks)
            said.append(error)
            assert error.exit_code == 1
            await tasks.close()
        assert isinstance(said[0], ServiceError)
        assert said[0].what == "The controller cannot go on: its task 'api' failed: socket gone."
        assert said[1].what == "The controller cannot go on: its task 'api' ended."
        assert said[2].what == "The local cluster has gone."

    asyncio.run(scenario())


def test_an_end_that_was_asked_for_is_not_a_failure() -> None:
    async def scenario() -> None:
        tasks, stop = Tasks(), asyncio.Event()
        tasks.need("api", stop.wait)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        tasks.closing = True
        stop.set()
        await tasks.close()
        assert not tasks.fatal.done()
        assert tasks.shown()[0]["failures"] == 0

    asyncio.run(scenario())
