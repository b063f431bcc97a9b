"""The processes of one job's ranks on this node: starting, ending, and reporting how they ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from offcut.agent.node_system import NodeSystem
from offcut.agent.rank import Rank
from offcut.agent.worker_process import Running, WorkerProcess, is_script
from offcut.errors import ClusterError
from offcut.process import clocks
from offcut.wire import messages
from offcut.wire.worker_env import (
    ENV_CHECKPOINT_AGE,
    ENV_GOAL,
    ENV_JOB,
    ENV_JOB_DIR,
    ENV_MAX_BUDGET,
    ENV_PARAMETERS,
    ENV_RECORDS,
    ENV_WORKERS_MARK,
    HUGE_PAGES,
    worker_name,
)

Outcome = Literal["left", "finished", "failed", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the ranks ended: their exit codes, or in `error` why they could not be started."""

    codes: Sequence[int] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StableStep:
    """What was stable when the workers were last heard of: steps, and samples since the training began."""

    generation: int = 0
    step: int = 0
    samples: int = 0


class RankProcesses:
    """The ranks of one job on this node. `report` sends a message to the controller; `extra_env` is the agent's."""

    def __init__(
        self,
        node: str,
        start: messages.Start,
        extra_env: dict[str, str],
        report: Callable[[messages.Message], None],
    ) -> None:
        self.node = node
        self.launch = start.launch
        self.incarnation = start.incarnation
        self.report = report
        self._mark = f"{self.launch.directory}#{self.incarnation}"
        self._leave_by: float | None = None
        directory = Path(self.launch.directory)
        self.ranks = [
            Rank(name := worker_name(node, self.incarnation, i), directory / "logs" / f"{name}.log")
            for i in range(self.launch.ranks_per_node)
        ]
        env = {
            **os.environ,
            **extra_env,
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "PYTHONUNBUFFERED": "1",
            HUGE_PAGES[0]: os.environ.get(*HUGE_PAGES),
            **self.launch.env,
        }
        #: See `WorkerProcess.load_env`.
        self._load_env = None
        if ENV_PARAMETERS in env:
            self._load_env = {name: env[name] for name in env if name not in (ENV_PARAMETERS, ENV_MAX_BUDGET)}
        #: Starts of processes that are under way.
        self._starting: set[asyncio.Task[Running]] = set()
        #: The environment that all ranks have in common.
        self.env = {
            **env,
            ENV_WORKERS_MARK: self._mark,
            ENV_JOB: self.launch.job,
            ENV_JOB_DIR: self.launch.directory,
            ENV_CHECKPOINT_AGE: str(self.launch.checkpoint_age_s),
            ENV_GOAL: "" if self.launch.goal_samples is None else str(self.launch.goal_samples),
            ENV_RECORDS: "1" if self.launch.step_records else "",
        }

    @property
    def leaving(self) -> bool:
        """Whether the workers were told to leave."""
        return self._leave_by is not None

    @property
    def left_s(self) -> float:
        """How many seconds workers that were told to leave still have."""
        return 0.0 if self._leave_by is None else max(0.0, self._leave_by - clocks.steady_s())

    def leave_within(self, limit_s: float) -> bool:
        """Kill what is left after `limit_s`, and at once what has not started.

        Returns:
            False where an earlier limit holds already.
        """
        leave_by = clocks.steady_s() + limit_s
        if self._leave_by is not None and leave_by >= self._leave_by:
            return False
        self._leave_by = leave_by
        self._cancel_starts()
        asyncio.get_running_loop().call_later(limit_s, self.kill)
        return True

    def rank(self, name: str) -> Rank | None:
        """Return the rank with this worker name."""
        return next((rank for rank in self.ranks if rank.name == name), None)

    def kill(self) -> None:
        """Kill every rank, and all that it started; cancel starts that are under way."""
        self._cancel_starts()
        for rank in self.ranks:
            if rank.running is not None:
                rank.running.kill()

    def _cancel_starts(self) -> None:
        for starting in self._starting:
            starting.cancel()

    async def run(
        self,
        system: NodeSystem,
        *,
        prepare: Callable[[], Awaitable[None]],
        rank_env: Callable[[Rank, int], dict[str, str]],
        on_exit: Callable[[Rank, int], None],
        on_start: Callable[[Rank], None] = lambda _: None,
    ) -> Ended:
        """Start every rank and wait until all are gone.

        Args:
            system: The node, on which it starts the processes.
            prepare: Awaited before the ranks are started.
            rank_env: Returns the environment of the rank with this number on the node.
            on_exit: Called with each rank's exit code; minus the signal's number if one ended it.
            on_start: Called with each rank when it has been started.
        """
        if self.leaving:
            return Ended()
        error = ""
        try:
            await prepare()
            if not self.leaving:
                await self._start_all(system, rank_env, on_start)
        except (ClusterError, OSError) as failed:
            error = str(failed)
            self.kill()
        codes = await asyncio.gather(*(self._wait(rank, on_exit) for rank in self.ranks if rank.running))
        await system.kill_escaped(self._mark)
        if not self.leaving and any(codes):
            for rank in self.ranks:
                rank.last_output = await system.last_output(rank.log)
        return Ended(codes=codes, error=error)

    async def _start_all(
        self, system: NodeSystem, rank_env: Callable[[Rank, int], dict[str, str]], on_start: Callable[[Rank], None]
    ) -> None:
        starts = (self._start(system, rank, partial(rank_env, rank, i), on_start) for i, rank in enumerate(self.ranks))
        # Wait for all starts, even if one fails: no process may be started after this.
        for outcome in await asyncio.gather(*starts, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _start(
        self, system: NodeSystem, rank: Rank, env: Callable[[], dict[str, str]], on_start: Callable[[Rank], None]
    ) -> None:
        await system.make_directory(rank.log.parent)
        if self.leaving:
            return
        command = self.launch.command
        if is_script(command) and not os.path.isabs(command[0]):
            command = (os.path.join(self.launch.workdir, command[0]), *command[1:])
        process = WorkerProcess(
            command=command,
            env=env(),
            workdir=self.launch.workdir,
            log=rank.log,
            setup=self.launch.setup,
            umask=self.launch.umask,
            load_env=self._load_env,
        )
        rank.running = await self._started(system, process)
        if rank.running is None:
            return
        if self._leave_by is not None:  # told to leave meanwhile
            rank.running.kill()
        on_start(rank)

    async def _started(self, system: NodeSystem, process: WorkerProcess) -> Running | None:
        """Return the process once it has started; None if it was killed before."""
        starting = asyncio.ensure_future(system.start(process))
        self._starting.add(starting)
        try:
            return await starting
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # it is not this start alone that is cancelled
            return None
        finally:
            self._starting.discard(starting)

    @staticmethod
    async def _wait(rank: Rank, on_exit: Callable[[Rank, int], None]) -> int:
        assert rank.running is not None
        code = await rank.running.wait()
        # Its process id may be reused from now on.
        rank.running = None
        on_exit(rank, code)
        return code

    async def report_exit(
        self, system: NodeSystem, outcome: Outcome, detail: str, code: int | None, stable: StableStep
    ) -> None:
        """Report that all ranks are gone, and how they ended; `code` is the exit code of the rank that decided it."""
        disk = ""
        if outcome == "failed" and not any(rank.hung for rank in self.ranks):
            disk = await system.disk_trouble(Path(self.launch.directory), detail)
        self.report(
            messages.Exited(
                job=self.launch.job,
                incarnation=self.incarnation,
                outcome=outcome,
                detail=detail,
                code=code,
                generation=stable.generation,
                stable_step=stable.step,
                samples=stable.samples,
                disk=disk,
            )
        )
