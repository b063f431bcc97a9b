"""Workers that are told to leave before they have started."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from offcut.agent.node_system import LocalNode
from offcut.agent.rank_processes import RankProcesses
from offcut.agent.session_workers import SessionWorkers
from offcut.agent.worker_process import Running, WorkerProcess
from offcut.wire import messages


class LoadingNode(LocalNode):
    """A node on which the script of every worker takes for ever to load."""

    def __init__(self, directory: Path) -> None:
        super().__init__(None, directory / "agent.sock")
        self.loading = asyncio.Event()

    async def start(self, process: WorkerProcess) -> Running:
        self.loading.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def kill_escaped(self, mark: str) -> None:
        """There are none."""


@pytest.mark.parametrize("ranks", [1, 2])
def test_workers_whose_script_is_being_loaded_leave_at_once(tmp_path: Path, ranks: int) -> None:
    reports: list[messages.Message] = []

    async def scenario() -> None:
        node = LoadingNode(tmp_path)
        launch = messages.Launch(
            job="s-1.0", command=("t.py",), workdir="/", directory=str(tmp_path), ranks_per_node=ranks
        )
        processes = RankProcesses("n01", messages.Start(launch=launch, incarnation=1), {}, reports.append)
        workers = SessionWorkers(processes, tmp_path / "agent.sock")
        async with asyncio.timeout(120):
            running = asyncio.create_task(workers.run(node))
            await node.loading.wait()
            workers.leave(3600.0)
            await running

    asyncio.run(scenario())
    (report,) = reports
    assert isinstance(report, messages.Exited)
    assert (report.outcome, report.incarnation) == ("left", 1)
