"""The adapter of virtual nodes, without a daemon: what it sends, and when."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from offcut.cluster.local.adapter import LocalCluster
from offcut.wire.credentials import Credentials


def test_a_file_system_that_hangs_delays_only_the_nodes_that_are_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = Credentials.load(tmp_path / "key", tmp_path / "agents")
    works = threading.Event()
    issue = credentials.issue
    monkeypatch.setattr(credentials, "issue", lambda node, pilot: (works.wait(60.0), issue(node, pilot))[1])
    sent: list[dict[str, Any]] = []

    async def scenario() -> None:
        cluster = LocalCluster(tmp_path, tmp_path / "address.json", credentials)
        monkeypatch.setattr(cluster, "_send", lambda **message: sent.append(message))
        claim = asyncio.create_task(cluster.claim(["n1", "n2"], None))
        await asyncio.sleep(0)
        release = asyncio.create_task(cluster.release(["n3", "n1"]))
        await asyncio.sleep(0)
        assert sent == [{"kind": "release", "nodes": ["n3"]}]  # the loop goes on, and so does the release of others
        works.set()
        await asyncio.gather(claim, release)
        assert [message["kind"] for message in sent] == ["release", "claim", "release"]
        assert set(sent[1]["claims"]) == {"n1", "n2"}
        assert sent[2]["nodes"] == ["n1"]
        assert all(credentials.file(pilot).exists() for pilot in sent[1]["claims"].values())
        await cluster.release(["n2"])
        assert sent[3]["nodes"] == ["n2"]

    asyncio.run(scenario())
