"""One job's ranks on this node, for a script that does not use offcut (mode `restart`).

A script that runs under torchrun gets the same here: the same environment, and rank 0 hosts the store at
MASTER_ADDR:MASTER_PORT. torchrun itself is not used: it takes seconds to agree on a membership that the controller has
decided already, and would be one more process between the agent and the ranks that must end in time.
"""

from __future__ import annotations

import asyncio
import signal
from functools import partial

from offcut.agent.heartbeat_timeouts import HeartbeatTimeouts
from offcut.agent.launch_network import meeting_host
from offcut.agent.node_system import NodeSystem
from offcut.agent.rank import Rank
from offcut.agent.rank_processes import Ended, Outcome, RankProcesses, StableStep
from offcut.wire import messages, worker_messages


class RestartWorkers:
    """Workers that are ready at once, start when a generation includes them, and end with that generation.

    `route_address` is this node's address on its route to the controller.
    """

    def __init__(self, processes: RankProcesses, route_address: str) -> None:
        self.processes = processes
        self.address = ""
        self.newest_generation = 0
        self._host = meeting_host(processes.env, route_address)
        self._gloo_env: dict[str, str] = {}
        self._told_ready = False
        #: Set when a generation includes this node, or when the workers were told to leave.
        self._may_start = asyncio.Event()
        self._membership: messages.NewGeneration | None = None
        #: The first rank that ended badly: the others fail because of it.
        self._first_to_fail: tuple[Rank, int] | None = None

    @property
    def ready(self) -> bool:
        """Whether the controller has been told that this node can be part of a generation."""
        return self._told_ready

    async def run(self, system: NodeSystem) -> None:
        """Wait for a generation, start every rank, wait until all are gone, and report how they ended."""
        ended = await self.processes.run(
            system,
            prepare=partial(self._prepare, system),
            rank_env=self._rank_env,
            on_start=self._on_start,
            on_exit=self._on_exit,
        )
        generation = 0 if self._membership is None else self._membership.generation
        await self.processes.report_exit(system, *self._outcome(ended), StableStep(generation=generation))

    async def _prepare(self, system: NodeSystem) -> None:
        self._gloo_env = await system.gloo_env(self.processes.env, self._host)
        with system.reserve_port(self._host) as port:
            self.address = f"{self._host}:{port}"
            self._told_ready = True
            self.processes.report(
                messages.Ready(
                    job=self.processes.launch.job, incarnation=self.processes.incarnation, address=self.address
                )
            )
            await self._may_start.wait()

    def _rank_env(self, _: Rank, local_rank: int) -> dict[str, str]:
        assert self._membership is not None
        return {
            **self.processes.env,
            **self._gloo_env,
            **torchrun_env(self._membership, self.processes.node, local_rank),
        }

    def _on_start(self, rank: Rank) -> None:
        generation = self._membership
        first = rank is self.processes.ranks[0]
        if generation is not None and first and generation.members[0].node == self.processes.node:
            self.processes.report(
                messages.Formed(job=self.processes.launch.job, generation=generation.generation, step=0)
            )

    def _on_exit(self, rank: Rank, code: int) -> None:
        if code != 0:
            if self._first_to_fail is None:
                self._first_to_fail = rank, code
            self.processes.kill()

    def _outcome(self, ended: Ended) -> tuple[Outcome, str, int | None]:
        if ended.error:
            return "failed", ended.error, None
        if self.processes.leaving:
            return "left", "", None
        if self._first_to_fail is None:
            return "finished", "", 0
        rank, code = self._first_to_fail
        if code < 0:
            return "lost", f"killed by signal {-code}", code
        return "failed", rank.last_output or f"exit code {code}, and no output", code

    def set_generation(self, generation: messages.NewGeneration) -> None:
        """Start the ranks in the first generation that includes this node; end them when a newer one is told."""
        if self._membership is None:
            us = self.processes.node, self.processes.incarnation
            if any((member.node, member.incarnation) == us for member in generation.members):
                self._membership = generation
                self._may_start.set()
        elif generation.generation > self._membership.generation:
            # The controller also tells the agent to stop them, but that message may be lost.
            self.leave(self.processes.launch.restart_grace_s)

    def leave(self, limit_s: float, *, node_wanted: bool = False) -> None:
        """Send SIGTERM once, as the batch system does; kill what is left after `limit_s`."""
        first = not self.processes.leaving
        if not self.processes.leave_within(limit_s):
            return
        self._may_start.set()
        for rank in self.processes.ranks:
            if first and rank.running is not None:
                rank.running.signal(signal.SIGTERM)

    def connected(self, rank: Rank, connection: asyncio.StreamWriter, pid: int) -> None:
        """Refuse the connection: these scripts have no session, and are not told where the agent listens."""
        connection.close()

    def on_message(self, rank: Rank, message: worker_messages.FromWorker) -> None:
        """Ignore the message; see `connected`."""

    def kill_frozen(self, timeouts: HeartbeatTimeouts) -> None:
        """Do nothing: these workers send no heartbeats."""


def torchrun_env(generation: messages.NewGeneration, node: str, local_rank: int) -> dict[str, str]:
    """Return what torchrun puts into the environment of the rank `local_rank` of `node`.

    https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
    """
    group_rank = next(i for i, member in enumerate(generation.members) if member.node == node)
    rank = sum(member.ranks for member in generation.members[:group_rank]) + local_rank
    world = sum(member.ranks for member in generation.members)
    host, _, port = generation.store.rpartition(":")
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(generation.members[group_rank].ranks),
        "GROUP_RANK": str(group_rank),
        "GROUP_WORLD_SIZE": str(len(generation.members)),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": generation.job,
        # Grows from launch to launch; 0 says that it is the first.
        "TORCHELASTIC_RESTART_COUNT": str(generation.generation - 1),
        "TORCHELASTIC_MAX_RESTARTS": str(generation.generation - 1),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
