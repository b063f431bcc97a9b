"""A controller that cannot start leaves nothing that keeps the next one out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from offcut.cluster.local.schedule import Schedule
from offcut.cluster.local.site import LocalSite
from offcut.control import Settings
from offcut.errors import ClusterError
from offcut.service import clusters
from offcut.service.paths import StatePaths
from offcut.service.run import ServiceConfig, serve
from offcut.service.shutdown import Endings


def test_a_start_that_the_batch_system_refuses_gives_up_lock_and_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise ClusterError("no such partition")

    monkeypatch.setattr(clusters, "connect", refuse)
    paths = StatePaths(tmp_path)
    config = ServiceConfig(
        state_dir=tmp_path, settings=Settings(), site=LocalSite(schedule=Schedule.always_idle(["n01"]))
    )
    for _ in range(2):
        with pytest.raises(ClusterError, match="no such partition"):
            asyncio.run(serve(config, Endings()))
        assert not paths.lease.exists()
        paths.take_lock().close()
