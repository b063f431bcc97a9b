"""`offcut up --cluster slurm --dry-run` says what a controller would claim now, by the same rule."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from offcut.cli import dry_run
from offcut.cluster.slurm.queue_query import QueueQuery
from offcut.cluster.slurm.records import NodeRow, PartitionRow, View
from offcut.cluster.slurm.site import SlurmSite, make_site
from offcut.cluster.slurm.slurm_config import SlurmSetup

ALWAYS = ["00:00-24:00"]


def site(**fields: object) -> SlurmSite:
    return make_site({"partition": "idle", **fields}, "test")


@pytest.fixture
def two_idle_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {name: NodeRow(name=name, state="idle", flags=frozenset()) for name in ("n1", "n2")}
    partition = PartitionRow(
        name="idle", up=True, nodes="n[1-2]", max_time_s=None, preempt_mode="CANCEL", grace_s=0.0, priority_tier=1
    )
    main = replace(partition, name="main", preempt_mode="OFF", priority_tier=10)

    async def snapshot(self: QueueQuery) -> View:
        return View(time_s=1e6, nodes=rows, waiting=(), own={}, reservations=(), partition=partition)

    async def setup(self: QueueQuery) -> SlurmSetup:
        config = {"PreemptType": "preempt/partition_prio", "PreemptMode": "CANCEL"}
        return SlurmSetup(config=config, partitions={"idle": partition, "main": main})

    monkeypatch.setattr(QueueQuery, "snapshot", snapshot)
    monkeypatch.setattr(QueueQuery, "setup", setup)
    monkeypatch.setattr(dry_run, "check_installed", lambda: None)


def claims(given: SlurmSite, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    asyncio.run(dry_run.show(given, Path("/shared"), json=True))
    return {row["node"]: row["claim"] for row in json.loads(capsys.readouterr().out)}


def test_idle_nodes_would_be_claimed(two_idle_nodes: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert claims(site(), capsys) == {"n1": True, "n2": True}
    assert claims(site(max_nodes=1), capsys) == {"n1": True, "n2": False}


def test_no_node_would_be_claimed_in_quiet_hours(two_idle_nodes: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert claims(site(quiet=ALWAYS), capsys) == {"n1": False, "n2": False}
    asyncio.run(dry_run.show(site(quiet=ALWAYS), Path("/shared"), json=False))
    assert "quiet hours" in capsys.readouterr().out
