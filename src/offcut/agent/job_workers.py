"""The interface between the agent and one job's workers on its node, for all kinds of scripts."""

from __future__ import annotations

import asyncio
from typing import Protocol

from offcut.agent.heartbeat_timeouts import HeartbeatTimeouts
from offcut.agent.node_system import NodeSystem
from offcut.agent.rank import Rank
from offcut.agent.rank_processes import RankProcesses
from offcut.wire import messages, worker_messages


class JobWorkers(Protocol):
    """One job's workers on this node, from start to exit: `SessionWorkers` or `RestartWorkers`."""

    processes: RankProcesses
    #: Where other nodes find the first of these ranks; empty where they find each other through the rendezvous store.
    address: str
    #: The newest generation that they have been told; 0: none.
    newest_generation: int

    @property
    def ready(self) -> bool:
        """Whether all ranks wait for a generation, or are in one."""
        ...

    async def run(self, system: NodeSystem) -> None:
        """Start every rank, wait until all are gone, and report how they ended."""
        ...

    def set_generation(self, generation: messages.NewGeneration) -> None:
        """Tell the workers the job's newest generation."""
        ...

    def leave(self, limit_s: float, *, node_wanted: bool = False) -> None:
        """Tell the workers to leave, and whether the node is wanted; kill those that are left after `limit_s`."""
        ...

    def connected(self, rank: Rank, connection: asyncio.StreamWriter, pid: int) -> None:
        """Note that a rank has connected to the agent; `pid` is its process."""
        ...

    def on_message(self, rank: Rank, message: worker_messages.FromWorker) -> None:
        """Note what a worker says, and report to the controller what it should hear."""
        ...

    def kill_frozen(self, timeouts: HeartbeatTimeouts) -> None:
        """Kill ranks that have been silent for too long."""
        ...
