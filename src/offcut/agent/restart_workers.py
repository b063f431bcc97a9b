"""One job's ranks on this node, for a script that knows nothing of offcut (mode `restart`).

A script that runs under torchrun finds here what it finds there: the same environment, and rank 0 holds the store at
MASTER_ADDR:MASTER_PORT. torchrun itself would only stand between: it takes seconds to agree on a membership that the
controller has decided already, and what must be gone in time is two processes away instead of one.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from offcut.agent.job_workers import JobWorkers
from offcut.agent.launch import Launcher
from offcut.agent.rank import Rank
from offcut.wire import messages

#: Outside of the range that systems take the ports of outgoing connections from.
_PORTS = range(20_000, 32_000)


class RestartWorkers(JobWorkers):
    """Is ready at once; launches the script when a generation includes it, and lives no longer than that generation."""

    def __init__(self, *given: Any, host: str) -> None:
        super().__init__(*given)
        self._host = host
        self._ordered = asyncio.Event()
        self._membership: messages.NewGeneration | None = None
        #: The first rank that ended badly: the others fail because of it.
        self._first_to_fail: tuple[Rank, int] | None = None

    @property
    def ready(self) -> bool:
        return self._told_ready

    async def _prepare(self) -> None:
        with _reserved_port(self._host) as port:
            self.address = f"{self._host}:{port}"
            self._told_ready = True
            self._report(messages.Ready(job=self.launch.job, incarnation=self.incarnation, address=self.address))
            await self._ordered.wait()

    async def _start(self, launcher: Launcher, rank: Rank, local_rank: int) -> None:
        await super()._start(launcher, rank, local_rank)
        if rank.running is None:
            return  # told to go meanwhile
        generation = self._membership
        if generation is not None and rank is self.ranks[0] and generation.members[0].node == self._node:
            self._report(messages.Formed(job=self.launch.job, generation=generation.generation, step=0))

    def _rank_env(self, rank: Rank, local_rank: int) -> dict[str, str]:
        assert self._membership is not None
        return {**self._env, **torchrun_env(self._membership, self._node, local_rank)}

    async def _wait(self, rank: Rank) -> int:
        code = await self._exit_code(rank)
        if code != 0:
            if self._first_to_fail is None:
                self._first_to_fail = rank, code
            self.kill()
        return code

    def _outcome(self, codes: list[int], detail: str) -> tuple[Any, str]:
        if detail:
            return "failed", detail
        if self._stopping is not None:
            return "left", ""
        if self._first_to_fail is None:
            return "finished", ""
        rank, code = self._first_to_fail
        if code < 0:
            return "lost", f"killed by signal {-code}"
        return "failed", rank.last_output or f"exit code {code}, and no output"

    def take_generation(self, generation: messages.NewGeneration) -> None:
        if self._membership is None:
            if any(
                (member.node, member.incarnation) == (self._node, self.incarnation) for member in generation.members
            ):
                self._membership = generation
                self._generation = generation.generation
                self._ordered.set()
        elif generation.generation > self._membership.generation:
            # Its launch is over. The word to stop follows, unless it was lost.
            self.leave(self.launch.restart_grace_s)

    def leave(self, limit_s: float) -> None:
        """SIGTERM, as the batch system gives it; what is left after `limit_s` is killed."""
        leave_by = time.monotonic() + limit_s
        first = self._stopping is None
        if self._stopping is not None and leave_by >= self._stopping:
            return
        self._stopping = leave_by
        self._ordered.set()
        for rank in self.ranks:
            if first and rank.running is not None:
                rank.running.signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(limit_s, self.kill)


def torchrun_env(generation: messages.NewGeneration, node: str, local_rank: int) -> dict[str, str]:
    """What torchrun puts into the environment of the rank `local_rank` of `node`.

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


@contextmanager
def _reserved_port(host: str) -> Iterator[int]:
    """A port that no other process here can take until the block is left: then a rank may listen on it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as holder:
        for port in random.sample(_PORTS, 100):
            with suppress(OSError):
                holder.bind((host, port))
                yield port
                return
        raise OSError(f"no free port on {host} in {_PORTS.start}..{_PORTS.stop - 1}")
