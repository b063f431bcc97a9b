"""What `offcut.cluster.base.Cluster` promises, as tests that any implementation can be put through."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from offcut.cluster.base import Cluster
from offcut.model.events import ClaimRefused, NodesChanged
from offcut.wire import tokens
from offcut.wire.credentials import Credentials, Identity


class WatchedCluster:
    """A cluster under test, and everything that it has reported so far.

    Make one inside a running event loop: it begins to read `cluster.observe()` at once.

    Args:
        cluster: the implementation, connected.
        want: lets the batch system want these nodes back, or take them for a job of its own if they are not claimed.

    Attributes:
        offered: names of nodes in the order in which they were offered; a node may be in it several times.
        wanted: names of nodes that were reported wanted.
        lost: names of nodes that were reported lost.
        refused: names of nodes for which a claim was refused.
    """

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

    async def until(self, holds: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Wait until `holds()` is true.

        Raises:
            TimeoutError: it was not true within `limit_s` seconds.
        """
        async with asyncio.timeout(limit_s):
            while not holds():
                await asyncio.sleep(0.01)
                if self._following.done():
                    self._following.result()

    async def settled(self) -> None:
        """Wait until every call made before this one has been answered."""
        await self.cluster.statistics()
        await asyncio.sleep(0.05)


#: Starts the cluster under test; on leaving the context the cluster is closed.
StartCluster = Callable[[], AbstractAsyncContextManager[WatchedCluster]]


class ClusterConformance:
    """The promises of `offcut.cluster.base.Cluster`.

    Inherit, and define the fixture `cluster`; `nodes` and `unknown_node` may be replaced::

        class TestMyCluster(ClusterConformance):
            @pytest.fixture
            def cluster(self, directory: Path) -> StartCluster:
                @asynccontextmanager
                async def start() -> AsyncIterator[WatchedCluster]:
                    mine = MyCluster(directory, Credentials.load(directory / "agents.key", directory / "agents"))
                    await mine.connect()
                    try:
                        yield WatchedCluster(mine, mine.want)
                    finally:
                        await mine.close()

                return start

    The cluster has to have exactly the nodes `nodes`, all idle when it starts, and has to give out credentials of
    `directory / "agents.key"` and `directory / "agents"`.
    """

    #: The cluster's nodes, in sorted order; at least two.
    nodes: Sequence[str] = ("n01", "n02", "n03")
    #: A name that no node of the cluster has.
    unknown_node: str = "n99"

    @pytest.fixture
    def directory(self) -> Iterator[Path]:
        """Yield an empty directory with a short name, because UNIX sockets lie in it.

        Each process of yours must name it.
        """
        root = Path(tempfile.mkdtemp(prefix="offcut-test-"))
        yield root
        shutil.rmtree(root, ignore_errors=True)

    @pytest.fixture
    def cluster(self, directory: Path) -> StartCluster:
        """Return a function that starts the cluster under test."""
        raise NotImplementedError(f"{type(self).__name__} has to define the fixture 'cluster'")

    @pytest.fixture(autouse=True)
    def no_process_left(self, directory: Path) -> Iterator[None]:
        """Check that no process with `directory` in its command line outlives a test by more than 5 s."""
        yield
        assert processes_of(directory, patience_s=5.0) == []

    def test_begins_with_what_is_idle_and_every_claim_ends_in_a_loss(self, cluster: StartCluster) -> None:
        first, second = self.nodes[:2]

        async def scenario() -> None:
            async with cluster() as watched:
                await watched.until(lambda: sorted(watched.offered) == list(self.nodes))
                await watched.cluster.claim([first, second], None)
                await watched.cluster.release([first])
                await watched.until(lambda: first in watched.lost)
                await watched.until(lambda: watched.offered.count(first) == 2)
                assert second not in watched.lost

        asyncio.run(scenario())

    def test_no_node_is_claimed_twice(self, cluster: StartCluster) -> None:
        first = self.nodes[0]

        async def scenario() -> None:
            async with cluster() as watched:
                await watched.until(lambda: len(watched.offered) == len(self.nodes))
                await watched.cluster.claim([first], None)
                await watched.cluster.claim([first, self.unknown_node], None)
                await watched.until(lambda: sorted(watched.refused) == sorted([first, self.unknown_node]))
                assert watched.lost == []

        asyncio.run(scenario())

    def test_release_is_idempotent_and_safe_for_nodes_that_are_not_claimed(self, cluster: StartCluster) -> None:
        first, second = self.nodes[:2]

        async def scenario() -> None:
            async with cluster() as watched:
                await watched.until(lambda: len(watched.offered) == len(self.nodes))
                await watched.cluster.claim([first], None)
                for _ in range(3):
                    await watched.cluster.release([first, second, self.unknown_node])
                await watched.until(lambda: watched.lost == [first])
                await watched.cluster.release([first])
                await watched.settled()
                assert watched.lost == [first]

        asyncio.run(scenario())

    def test_a_wanted_node_is_reported_once_and_lost_before_it_is_offered_again(self, cluster: StartCluster) -> None:
        first, second = self.nodes[:2]

        async def scenario() -> None:
            async with cluster() as watched:
                await watched.until(lambda: len(watched.offered) == len(self.nodes))
                await watched.cluster.claim([first], None)
                await watched.want([first])
                await watched.want([first, second])
                await watched.until(lambda: first in watched.lost)
                assert sorted(watched.wanted) == sorted([first, second])
                assert watched.offered.count(first) == 1
                await watched.cluster.claim([first], None)
                await watched.until(lambda: watched.refused == [first])

        asyncio.run(scenario())

    def test_every_hold_has_a_name_of_its_own_and_a_credential_while_it_lasts(
        self, cluster: StartCluster, directory: Path
    ) -> None:
        first = self.nodes[0]
        credentials = Credentials.load(directory / "agents.key", directory / "agents")

        async def hold(watched: WatchedCluster, times: int) -> str:
            await watched.until(lambda: watched.offered.count(first) == times)
            await watched.cluster.claim([first], None)
            await watched.until(lambda: watched.cluster.pilot(first) is not None)
            pilot = watched.cluster.pilot(first)
            assert pilot is not None
            await watched.until(credentials.file(pilot).exists)
            assert credentials.check(tokens.read(credentials.file(pilot))) == Identity(first, pilot)
            await watched.cluster.release([first])
            await watched.until(lambda: watched.lost.count(first) == times)
            assert watched.cluster.pilot(first) is None
            await watched.until(lambda: not credentials.file(pilot).exists())
            return pilot

        async def scenario() -> None:
            async with cluster() as watched:
                assert await hold(watched, 1) != await hold(watched, 2)

        asyncio.run(scenario())


def processes_of(directory: Path, patience_s: float = 0.0) -> list[str]:
    """Return the command lines of all processes on this machine that name the directory.

    Args:
        directory: what is looked for in command lines.
        patience_s: how long to wait for such processes to end.
    """
    give_up_s = time.monotonic() + patience_s
    while (found := _command_lines_with(str(directory))) and time.monotonic() < give_up_s:
        time.sleep(0.05)
    return found


def _command_lines_with(text: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:  # the process has ended
            continue
        if text in command:
            found.append(command)
    return found
