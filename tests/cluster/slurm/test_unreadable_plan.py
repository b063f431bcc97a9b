"""A plan of the queue that cannot be read is told, and ends neither the adapter nor its pilots."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from offcut.cluster.slurm import adapter
from offcut.cluster.slurm.adapter import SlurmCluster
from offcut.cluster.slurm.commands import Commands
from offcut.cluster.slurm.site import SlurmSite
from offcut.model.events import NodesChanged
from offcut.wire.credentials import Credentials


class OddQueue(Commands):
    """A Slurm with one idle node, and one job that is planned on `planned`."""

    def __init__(self, planned: str) -> None:
        super().__init__(limit_s=1.0)
        self.planned = planned

    async def run(self, command: Sequence[str], stdin: str = "") -> str:
        match command[0]:
            case "scontrol" if command[2] == "partition":
                return "PartitionName=idle GraceTime=0 MaxTime=UNLIMITED Nodes=n1 PreemptMode=CANCEL State=UP\n"
            case "sinfo":
                return "n1|idle\n"
            case "squeue" if not any(word.startswith("--user") for word in command):
                mark = command[-1].removeprefix("--format=").partition("|")[0]
                job = f"7|PENDING|idle|1|||{self.planned}|2000000000|2000003600|ann|Resources|N/A|0|physics|normal|x"
                return f"{mark}|{job}\n"
            case _:
                return ""


def test_a_host_list_that_cannot_be_read_is_told_and_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "check_installed", lambda: None)
    site = SlurmSite(partition="idle", interval_s=0.2)
    queue = OddQueue("n[1-3")
    credentials = Credentials("key", tmp_path / "credentials")
    cluster = SlurmCluster(site, tmp_path, tmp_path, tmp_path / "address.json", credentials, queue)

    async def scenario() -> None:
        await cluster.connect()
        while not cluster.describe()["trouble"]:
            await asyncio.sleep(0.01)
        assert "which cannot be read" in cluster.describe()["trouble"]
        queue.planned = "n2"
        offered = await anext(cluster.observe())
        assert isinstance(offered, NodesChanged)
        assert [offer.node for offer in offered.offered] == ["n1"]
        assert cluster.describe()["trouble"] == ""
        await cluster.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))
