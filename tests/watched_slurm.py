"""The Slurm adapter on a private Slurm, without a controller: its events are recorded, and tests claim by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from live import PATIENCE_S, wait_for
from offcut.cluster.slurm.adapter import SlurmCluster
from offcut.cluster.slurm.commands import Commands
from offcut.cluster.slurm.site import make_site
from offcut.cluster.slurm.testbed import SlurmTestbed
from offcut.model.events import ClaimRefused, NodesChanged
from offcut.wire.credentials import Credentials
from slurmed import QUICK


class Watched:
    """A cluster on a private Slurm, and everything that it has told so far."""

    def __init__(self, slurm: SlurmTestbed, cluster: SlurmCluster) -> None:
        self.slurm = slurm
        self.cluster = cluster
        self.offers: dict[str, float | None] = {}
        self.wanted: list[str] = []
        self.lost: list[str] = []
        self.refused: dict[str, str] = {}
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        async for event in self.cluster.observe():
            if isinstance(event, ClaimRefused):
                self.refused |= dict.fromkeys(event.nodes, event.reason)
            elif isinstance(event, NodesChanged):
                self.wanted += event.wanted
                self.lost += event.lost
                for gone in (*event.wanted, *event.lost):
                    self.offers.pop(gone, None)
                self.offers |= {offer.node: offer.until_s for offer in event.offered}
                if event.wanted:  # as the controller does
                    await self.cluster.release(event.wanted)

    async def until(self, what: str, holds: Callable[[], object]) -> None:
        give_up_s = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < give_up_s, (what, self.offers, self.refused, self.cluster.describe())
            await asyncio.sleep(0.02)

    async def claim(self, *nodes: str) -> None:
        """Claim these nodes and wait for their pilots to run."""
        await self.until("the offer", lambda: set(nodes) <= set(self.offers))
        for node in nodes:
            del self.offers[node]
        await self.cluster.claim(nodes, None)
        await self.until("the pilots to run", lambda: self.cluster.describe()["held"] == len(nodes))

    def pilots(self, form: str) -> list[str]:
        return self.slurm.run("squeue", "--noheader", "--partition=idle", f"--format={form}").split()


@asynccontextmanager
async def connected(slurm: SlurmTestbed, directory: Path, **fields: object) -> AsyncIterator[Watched]:
    credentials = Credentials.load(directory / "agents.key", directory / "agents")
    files = directory / "cluster", directory, directory / "address.json", credentials
    cluster = SlurmCluster(make_site({**QUICK, **fields}, "test"), *files, Commands(20.0, slurm.env))
    await cluster.connect()
    try:
        yield Watched(slurm, cluster)
    finally:
        await cluster.close()
        assert slurm.run("squeue", "--noheader", "--partition=idle", "--format=%i %T") == ""
        slurm.run("scancel", "--partition=main")
        wait_for("no stray process", lambda: slurm.strays() == [])


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]
