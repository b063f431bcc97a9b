"""Every file of sites/ is accepted by a real Slurm: its pilots run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from offcut.cluster.slurm.adapter import SlurmCluster
from offcut.cluster.slurm.commands import Commands
from offcut.model.events import NodesChanged
from offcut.service.config import read_slurm_site
from offcut.wire.credentials import Credentials
from slurmed import MARKS

pytestmark = MARKS

SITES = sorted((Path(__file__).parents[3] / "sites").glob("*.toml"))


@pytest.mark.parametrize("file", SITES, ids=lambda file: file.stem)
def test_a_pilot_runs(private_slurm: Callable, state_dir: Path, file: Path) -> None:
    # The hours in which the test runs do not matter, the rest of the file does.
    site = read_slurm_site(file, interval_s=0.5, quiet=(), max_share=1.0)
    grace_s = 120 if "grace" in file.stem else 0
    gpus = int(site.gres.partition(":")[2] or 0)
    slurm = private_slurm(nodes=1, cpus=4, grace_s=grace_s, gpus=gpus)
    credentials = Credentials.load(state_dir / "agents.key", state_dir / "agents")
    files = state_dir / "cluster", state_dir, state_dir / "address.json", credentials

    async def scenario() -> None:
        cluster = SlurmCluster(site, *files, Commands(20.0, slurm.env))
        await cluster.connect()
        try:
            async for event in cluster.observe():
                if isinstance(event, NodesChanged) and event.offered:
                    break
            await cluster.claim(["n01"], None)
            give_up_s = time.monotonic() + 60
            while cluster.describe()["held"] != 1:
                assert time.monotonic() < give_up_s, slurm.run("squeue", "--format=%i %T %r")
                await asyncio.sleep(0.05)
        finally:
            await cluster.close()

    asyncio.run(scenario())
    assert slurm.run("squeue", "--noheader") == ""
