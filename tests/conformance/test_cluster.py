"""Every cluster adapter that comes with offcut keeps what `offcut.cluster.base.Cluster` promises."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from offcut.cluster.local.adapter import LocalCluster
from offcut.cluster.local.schedule import Schedule
from offcut.cluster.local.site import LocalSite, ensure_running
from offcut.cluster.slurm.adapter import SlurmCluster
from offcut.cluster.slurm.commands import Commands
from offcut.cluster.slurm.site import make_site
from offcut.cluster.slurm.testbed import SlurmTestbed
from offcut.testing import ClusterConformance, WatchedCluster
from offcut.testing.cluster import StartCluster
from offcut.wire.credentials import Credentials
from slurmed import QUICK, private_slurm  # noqa: F401

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live-1")]


class TestVirtualNodes(ClusterConformance):
    @pytest.fixture
    def cluster(self, directory: Path) -> StartCluster:
        @asynccontextmanager
        async def start() -> AsyncIterator[WatchedCluster]:
            credentials = Credentials.load(directory / "agents.key", directory / "agents")
            await ensure_running(directory / "cluster", LocalSite(schedule=Schedule.always_idle(self.nodes)))
            cluster = LocalCluster(directory / "cluster", directory / "address.json", credentials)
            await cluster.connect()
            cluster.begin()
            try:
                yield WatchedCluster(cluster, cluster.want)
            finally:
                await cluster.close()

        return start


@pytest.mark.slurm
class TestSlurm(ClusterConformance):
    @pytest.fixture
    def cluster(self, directory: Path, private_slurm: Callable[..., SlurmTestbed]) -> StartCluster:  # noqa: F811
        @asynccontextmanager
        async def start() -> AsyncIterator[WatchedCluster]:
            slurm = private_slurm(nodes=len(self.nodes))
            credentials = Credentials.load(directory / "agents.key", directory / "agents")
            files = directory / "cluster", directory, directory / "address.json", credentials
            cluster = SlurmCluster(make_site(QUICK, "test"), *files, Commands(20.0, slurm.env))

            async def want(nodes: list[str]) -> None:
                for node in nodes:
                    busy = slurm.run("squeue", "--noheader", "--partition=main", f"--nodelist={node}", "--format=%i")
                    if not busy.strip():
                        slurm.submit("exec sleep 600", "--partition=main", f"--nodelist={node}")

            await cluster.connect()
            try:
                yield WatchedCluster(cluster, want)
            finally:
                await cluster.close()
                assert slurm.run("squeue", "--noheader", "--partition=idle", "--format=%i") == ""
                slurm.stop()
                assert slurm.strays() == []

        return start
