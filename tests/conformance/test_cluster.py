"""What `cluster.base.Cluster` promises, checked on every implementation that runs here."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from offcut.cluster.base import Cluster
from offcut.cluster.local.adapter import LocalCluster
from offcut.cluster.local.schedule import Schedule
from offcut.cluster.local.site import LocalSite, ensure_running
from offcut.cluster.slurm.adapter import SlurmCluster
from offcut.cluster.slurm.commands import Commands
from offcut.cluster.slurm.site import make_site
from offcut.model.events import ClaimRefused, NodesChanged
from offcut.wire import tokens
from offcut.wire.credentials import Credentials, Identity
from slurmed import QUICK, private_slurm  # noqa: F401

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-1")]

NODES = ("n01", "n02", "n03")


class Watched:
    """A cluster, how to play its queue, and everything that it has told so far."""

    def __init__(self, cluster: Cluster, want: Callable[[list[str]], Awaitable[None]]) -> None:
        self.cluster = cluster
        self.want = want
        self.offered: list[str] = []
        self.wanted: list[str] = []
        self.lost: list[str] = []
        self.refused: list[str] = []
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for event in self.cluster.observe():
            if isinstance(event, ClaimRefused):
                self.refused += event.nodes
            elif isinstance(event, NodesChanged):
                self.offered += [offer.node for offer in event.offered]
                self.wanted += event.wanted
                self.lost += event.lost

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.01)

    async def settled(self) -> None:
        """Wait until whatever was asked before has been answered."""
        await self.cluster.statistics()
        await asyncio.sleep(0.05)


@asynccontextmanager
async def local(directory: Path) -> AsyncIterator[Watched]:
    credentials = Credentials.of(directory / "agents.key", directory / "agents")
    await ensure_running(directory / "cluster", LocalSite(schedule=Schedule.always_idle(NODES)))
    cluster = LocalCluster(directory / "cluster", directory / "address.json", credentials)
    await cluster.connect()
    cluster.begin()
    try:
        yield Watched(cluster, cluster.want)
    finally:
        await cluster.close()


@asynccontextmanager
async def slurm(directory: Path, start_slurm: Callable) -> AsyncIterator[Watched]:
    private = start_slurm(nodes=len(NODES))
    credentials = Credentials.of(directory / "agents.key", directory / "agents")
    files = directory / "cluster", directory, directory / "address.json", credentials
    cluster = SlurmCluster(make_site(QUICK, "test"), *files, Commands(20.0, private.env))

    async def want(nodes: list[str]) -> None:
        for node in nodes:
            busy = private.run("squeue", "--noheader", "--partition=main", f"--nodelist={node}", "--format=%i")
            if not busy.strip():
                private.submit("exec sleep 600", "--partition=main", f"--nodelist={node}")

    await cluster.connect()
    try:
        yield Watched(cluster, want)
    finally:
        await cluster.close()
        assert private.run("squeue", "--noheader", "--partition=idle", "--format=%i") == ""
        private.stop()
        assert private.strays() == []


@pytest.fixture
def directory() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="offcut-test-"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(params=["local", pytest.param("slurm", marks=pytest.mark.slurm)])
def cluster(request: pytest.FixtureRequest, directory: Path):
    if request.param == "local":
        return lambda: local(directory)
    start = request.getfixturevalue("private_slurm")
    return lambda: slurm(directory, start)


def left_behind(directory: Path) -> list[str]:
    """Processes that still name the directory, after a moment for those that are just ending."""
    give_up_s = time.monotonic() + 5.0
    while (found := _processes(directory)) and time.monotonic() < give_up_s:
        time.sleep(0.05)
    return found


def _processes(directory: Path) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            command = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if str(directory) in command:
            found.append(command)
    return found


def test_begins_with_what_is_idle_and_every_claim_ends_in_a_loss(cluster, directory: Path) -> None:
    async def scenario() -> None:
        async with cluster() as watched:
            await watched.until(lambda: sorted(watched.offered) == list(NODES))
            await watched.cluster.claim(["n01", "n02"], None)
            await watched.cluster.release(["n01"])
            await watched.until(lambda: "n01" in watched.lost)
            await watched.until(lambda: watched.offered.count("n01") == 2)
            assert "n02" not in watched.lost

    asyncio.run(scenario())
    assert left_behind(directory) == []


def test_no_node_is_claimed_twice(cluster, directory: Path) -> None:
    async def scenario() -> None:
        async with cluster() as watched:
            await watched.until(lambda: len(watched.offered) == len(NODES))
            await watched.cluster.claim(["n01"], None)
            await watched.cluster.claim(["n01", "n99"], None)
            await watched.until(lambda: sorted(watched.refused) == ["n01", "n99"])
            assert watched.lost == []

    asyncio.run(scenario())
    assert left_behind(directory) == []


def test_release_is_idempotent_and_safe_for_nodes_that_are_not_ours(cluster, directory: Path) -> None:
    async def scenario() -> None:
        async with cluster() as watched:
            await watched.until(lambda: len(watched.offered) == len(NODES))
            await watched.cluster.claim(["n01"], None)
            for _ in range(3):
                await watched.cluster.release(["n01", "n02", "n99"])
            await watched.until(lambda: watched.lost == ["n01"])
            await watched.cluster.release(["n01"])
            await watched.settled()
            assert watched.lost == ["n01"]

    asyncio.run(scenario())
    assert left_behind(directory) == []


def test_a_wanted_node_is_reported_once_and_lost_before_it_is_offered_again(cluster, directory: Path) -> None:
    async def scenario() -> None:
        async with cluster() as watched:
            await watched.until(lambda: len(watched.offered) == len(NODES))
            await watched.cluster.claim(["n01"], None)
            await watched.want(["n01"])
            await watched.want(["n01", "n02"])
            await watched.until(lambda: "n01" in watched.lost)
            assert sorted(watched.wanted) == ["n01", "n02"]
            assert watched.offered.count("n01") == 1
            await watched.cluster.claim(["n01"], None)
            await watched.until(lambda: watched.refused == ["n01"])

    asyncio.run(scenario())
    assert left_behind(directory) == []


def test_every_hold_has_a_name_of_its_own_and_a_credential_while_it_lasts(cluster, directory: Path) -> None:
    credentials = Credentials.of(directory / "agents.key", directory / "agents")

    async def hold(watched: Watched, times: int) -> str:
        await watched.until(lambda: watched.offered.count("n01") == times)
        await watched.cluster.claim(["n01"], None)
        await watched.until(lambda: watched.cluster.pilot("n01") is not None)
        pilot = watched.cluster.pilot("n01")
        assert pilot is not None
        await watched.until(credentials.file(pilot).exists)
        assert credentials.check(tokens.read(credentials.file(pilot))) == Identity("n01", pilot)
        await watched.cluster.release(["n01"])
        await watched.until(lambda: watched.lost.count("n01") == times)
        assert watched.cluster.pilot("n01") is None
        assert not credentials.file(pilot).exists()
        return pilot

    async def scenario() -> None:
        async with cluster() as watched:
            assert await hold(watched, 1) != await hold(watched, 2)

    asyncio.run(scenario())
    assert left_behind(directory) == []
