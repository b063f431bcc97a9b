"""Pauses and nodes set aside follow the monotonic clock, because the wall clock may be set."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from offcut.cluster.slurm import adapter
from offcut.cluster.slurm.adapter import SlurmCluster
from offcut.cluster.slurm.commands import CommandError, Commands
from offcut.cluster.slurm.site import SlurmSite
from offcut.model.events import ClaimRefused, NodesChanged
from offcut.wire.credentials import Credentials

NOW_S = time.time()


class FullQueue(Commands):
    """A Slurm with one idle node that refuses every pilot."""

    def __init__(self) -> None:
        super().__init__(limit_s=1.0)

    async def run(self, command: Sequence[str], stdin: str = "") -> str:
        match command[0]:
            case "sbatch" if "--test-only" not in command:
                raise CommandError("sbatch failed: the queue is full", "the queue is full", refused=True)
            case "scontrol" if command[2] == "partition":
                return "PartitionName=idle GraceTime=0 MaxTime=UNLIMITED Nodes=n1 PreemptMode=CANCEL State=UP\n"
            case "sinfo":
                return "n1|idle\n"
            case _:
                return ""


def test_a_pause_outlasts_a_jump_of_the_wall_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "check_installed", lambda: None)
    site = SlurmSite(partition="idle", interval_s=0.2, pause_after=1, pause_s=600.0)
    credentials = Credentials("key", tmp_path / "credentials")
    cluster = SlurmCluster(site, tmp_path, tmp_path, tmp_path / "address.json", credentials, FullQueue())

    async def scenario() -> None:
        await cluster.connect()
        events = cluster.observe()
        offered = await anext(events)
        assert isinstance(offered, NodesChanged)
        assert [offer.node for offer in offered.offered] == ["n1"]
        await cluster.claim(["n1"], None)
        while not isinstance(await anext(events), ClaimRefused):
            pass
        assert cluster.describe()["paused"]
        monkeypatch.setattr(time, "time", lambda: NOW_S + 86_400.0)
        looks = cluster._figures["looks"]
        while cluster._figures["looks"] < looks + 2:
            await asyncio.sleep(0.05)
        assert cluster.describe()["paused"], "a day later by the wall clock, a moment later in truth"
        assert cluster.describe()["offered"] == 0
        await cluster.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
