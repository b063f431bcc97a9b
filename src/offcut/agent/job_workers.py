"""One job's workers on this node, from start to exit."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from offcut.agent import devices, disks, escaped_processes
from offcut.agent.heartbeat_timeouts import HeartbeatTimeouts
from offcut.agent.launch import Launcher, WorkerProcess, is_script
from offcut.agent.rank import Rank
from offcut.errors import ClusterError
from offcut.process.daemon_thread import in_daemon_thread
from offcut.wire import messages, worker_messages
from offcut.wire.worker_env import (
    ENV_AGENT,
    ENV_CHECKPOINT_AGE,
    ENV_GOAL,
    ENV_JOB,
    ENV_JOB_DIR,
    ENV_RECORDS,
    ENV_WORKER,
    ENV_WORKERS_MARK,
    HUGE_PAGES,
    worker_name,
)

#: How much of a failed worker's log its report carries.
_TAIL_BYTES = 4000
#: A node reports its pace at most this often, over so many steps at least.
_PACE_S = 2.0
_PACE_STEPS = 5
#: Logs, and processes that hold on to a file system that hangs, are looked at for this long.
_LOOK_LIMIT_S = 2.0
_Result = TypeVar("_Result")


class JobWorkers:
    """`report` takes what the controller should hear. `run` starts the ranks and returns when all are gone."""

    def __init__(
        self,
        node: str,
        start: messages.Start,
        socket: Path,
        extra_env: dict[str, str],
        report: Callable[[messages.Message], None],
    ) -> None:
        self.launch = start.launch
        self.incarnation = start.incarnation
        self.done = False
        #: Where other nodes find the first of these ranks; empty where they find each other by other means.
        self.address = ""
        self._mark = f"{self.launch.directory}#{self.incarnation}"
        self._node = node
        self._socket = socket
        self._report = report
        self._stopping: float | None = None
        #: The number of the newest generation that it has been told.
        self.newest_generation = 0
        self._newest: messages.NewGeneration | None = None
        self._generation = 0
        self._stable_step = 0
        self._samples = 0
        self._told_ready = False
        self._paced_s = 0.0
        directory = Path(self.launch.directory)
        self.ranks = [
            Rank(name := worker_name(node, self.incarnation, i), directory / "logs" / f"{name}.log")
            for i in range(self.launch.ranks_per_node)
        ]
        self._env = {
            **os.environ,
            **extra_env,
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "PYTHONUNBUFFERED": "1",
            HUGE_PAGES[0]: os.environ.get(*HUGE_PAGES),
            **self.launch.env,
            ENV_WORKERS_MARK: self._mark,
            ENV_JOB: self.launch.job,
            ENV_JOB_DIR: self.launch.directory,
            ENV_CHECKPOINT_AGE: str(self.launch.checkpoint_age_s),
            ENV_GOAL: "" if self.launch.goal_samples is None else str(self.launch.goal_samples),
            ENV_RECORDS: "1" if self.launch.step_records else "",
        }

    def _is_stopping(self) -> bool:
        return self._stopping is not None

    @property
    def ready(self) -> bool:
        return all(rank.ready for rank in self.ranks)

    def rank(self, name: str) -> Rank | None:
        return next((rank for rank in self.ranks if rank.name == name), None)

    async def run(self, launcher: Launcher) -> None:
        """Start every rank, wait until all are gone, and report how it ended."""
        detail = ""
        codes: list[int] = []
        if self._stopping is None:
            try:
                await self._prepare()
                if self._stopping is None:
                    await self._start_all(launcher)
            except (ClusterError, OSError) as error:
                detail = str(error)
                self.kill()
            codes = await asyncio.gather(*(self._wait(rank) for rank in self.ranks if rank.running))
        await _within(_LOOK_LIMIT_S, escaped_processes.kill_marked, ENV_WORKERS_MARK, self._mark)
        self.done = True
        if self._stopping is None and any(codes):
            for rank in self.ranks:
                rank.last_output = await _within(_LOOK_LIMIT_S, tail, rank.log) or ""
        outcome, why = self._outcome(codes, detail)
        disk = ""
        if outcome == "failed" and not any(rank.hung for rank in self.ranks):
            disk = await _within(_LOOK_LIMIT_S, disks.trouble, Path(self.launch.directory), why) or ""
        self._report(
            messages.Exited(
                job=self.launch.job,
                incarnation=self.incarnation,
                outcome=outcome,
                detail=why,
                generation=self._generation,
                stable_step=self._stable_step,
                samples=self._samples,
                disk=disk,
            )
        )

    async def _start_all(self, launcher: Launcher) -> None:
        starts = (self._start(launcher, rank, i) for i, rank in enumerate(self.ranks))
        # All of them to the end, whatever becomes of one: none may come to be when nobody looks any more.
        for outcome in await asyncio.gather(*starts, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def _prepare(self) -> None:
        """Until the ranks may start."""

    def _rank_env(self, rank: Rank, local_rank: int) -> dict[str, str]:
        return {
            **self._env,
            **devices.rank_env(self._env, local_rank, len(self.ranks)),
            ENV_AGENT: str(self._socket),
            ENV_WORKER: rank.name,
            "LOCAL_RANK": str(local_rank),
        }

    async def _start(self, launcher: Launcher, rank: Rank, local_rank: int) -> None:
        # Into a file system that all nodes share, and that may hang: the job's workers wait then, the agent does not.
        await in_daemon_thread(partial(rank.log.parent.mkdir, parents=True, exist_ok=True))
        if self._is_stopping():
            return
        command = self.launch.command
        if is_script(command) and not os.path.isabs(command[0]):
            command = (os.path.join(self.launch.workdir, command[0]), *command[1:])
        rank.running = await launcher.start(
            WorkerProcess(
                command=command,
                env=self._rank_env(rank, local_rank),
                workdir=self.launch.workdir,
                log=rank.log,
                setup=self.launch.setup,
                umask=self.launch.umask,
            )
        )
        if self._stopping is not None:
            rank.running.kill()

    @staticmethod
    async def _exit_code(rank: Rank) -> int:
        assert rank.running is not None
        code = await rank.running.wait()
        # Its number may be another process's from now on.
        rank.running = None
        return code

    async def _wait(self, rank: Rank) -> int:
        code = await self._exit_code(rank)
        if code != 0 or not (rank.finished or rank.left):
            # A member is all its ranks: without one of them the others are of no use.
            self.kill()
        return code

    def _outcome(self, codes: list[int], detail: str) -> tuple[Any, str]:
        if detail:
            return "failed", detail
        if any(rank.frozen for rank in self.ranks):
            return "lost", "it froze and was killed"
        if any(rank.hung for rank in self.ranks):
            return "failed", f"hung: its script did not come back to its session for {self.launch.hang_limit_s:g} s"
        if self._stopping is not None:
            return "left", ""
        if all(rank.left for rank in self.ranks):
            return "left", ""
        raised = [rank for rank, code in zip(self.ranks, codes, strict=False) if code > 0]
        if raised:
            return "failed", raised[0].last_output or "no output"
        killed = [code for code in codes if code < 0]
        if killed:
            return "lost", f"killed by signal {-killed[0]}"
        if all(rank.finished for rank in self.ranks):
            return "finished", ""
        return "failed", (
            "the script ended before its session did; does it loop over session.epochs()? "
            "One without a session needs mode 'restart'."
        )

    # -- from the controller and the queue --------------------------------------------------------------------------

    def take_generation(self, generation: messages.NewGeneration) -> None:
        self._newest = generation
        for rank in self.ranks:
            rank.send(self._newest)

    def leave(self, limit_s: float) -> None:
        """Members leave at their boundary, within `limit_s`; ranks that are in no generation yet have nothing to
        keep.
        """
        leave_by = time.monotonic() + limit_s
        if self._stopping is not None and leave_by >= self._stopping:
            return
        self._stopping = leave_by
        for rank in self.ranks:
            if rank.ready:
                rank.send(worker_messages.Leave(limit_s=limit_s))
            elif rank.running is not None:
                rank.running.kill()
        asyncio.get_running_loop().call_later(limit_s, self.kill)

    def kill(self) -> None:
        for rank in self.ranks:
            if rank.running is not None:
                rank.running.kill()

    # -- from the workers -------------------------------------------------------------------------------------------

    def connected(self, rank: Rank, line: asyncio.StreamWriter, pid: int) -> None:
        rank.line = line
        rank.pid = pid
        rank.last_beat_s = time.monotonic()
        if self._newest is not None:
            rank.send(self._newest)

    def on_message(self, rank: Rank, message: worker_messages.FromWorker) -> None:
        """Note what the worker says, and report to the controller what it should hear."""
        rank.last_beat_s = time.monotonic()
        match message:
            case worker_messages.WorkerReady():
                self._on_ready(rank)
            case worker_messages.Beat():
                self._on_beat(rank, message)
            case worker_messages.WorkerFormed():
                self._report(
                    messages.Formed(
                        job=self.launch.job,
                        generation=message.generation,
                        step=message.step,
                        fingerprint=message.fingerprint,
                    )
                )
            case worker_messages.WorkerBroken():
                self._report(
                    messages.Broken(
                        job=self.launch.job,
                        incarnation=self.incarnation,
                        generation=message.generation,
                        detail=message.detail,
                    )
                )
            case worker_messages.WorkerFinished():
                rank.finished = True
                if message.first:
                    self._report(
                        messages.Trained(
                            job=self.launch.job,
                            generation=message.generation,
                            step=message.step,
                            samples=self._samples,
                        )
                    )
            case worker_messages.WorkerLeft():
                rank.left = True
            case worker_messages.WorkerNote():
                self._report(messages.Note(job=self.launch.job, text=message.text))
            case worker_messages.WorkerHello():
                pass  # said once, when it connected

    def _on_ready(self, rank: Rank) -> None:
        rank.ready = True
        if self._stopping is not None:
            rank.send(worker_messages.Leave(limit_s=max(0.0, self._stopping - time.monotonic())))
        elif self.ready and not self._told_ready:
            self._told_ready = True
            self._report(messages.Ready(job=self.launch.job, incarnation=self.incarnation))

    def _on_beat(self, rank: Rank, beat: worker_messages.Beat) -> None:
        if beat.script_s > self.launch.hang_limit_s and rank.running is not None:
            rank.hung = True
            rank.running.kill()
        progress = beat.progress
        if progress is None:
            return
        self._generation, self._stable_step, self._samples = progress.generation, progress.step, progress.samples
        if progress.first:
            self._report(
                messages.Progress(
                    job=self.launch.job,
                    generation=progress.generation,
                    step=progress.step,
                    samples=progress.samples,
                    loss=progress.loss,
                    clock_s=progress.clock_s,
                )
            )
        self._report_pace(rank, progress)

    def _report_pace(self, rank: Rank, progress: worker_messages.StepProgress) -> None:
        """Report now and then how long the slowest of this node's ranks computes per step."""
        if rank.pace_from is None or rank.pace_from.generation != progress.generation:
            rank.pace_from = progress
            return
        steps = progress.step - rank.pace_from.step
        if steps < _PACE_STEPS or time.monotonic() - self._paced_s < _PACE_S:
            return
        rank.own_step_s = max(0.0, progress.own_s - rank.pace_from.own_s) / steps
        rank.pace_from = progress
        if all(other.own_step_s is not None for other in self.ranks):
            self._paced_s = time.monotonic()
            slowest = max(other.own_step_s or 0.0 for other in self.ranks)
            for other in self.ranks:
                other.own_step_s = None
            self._report(
                messages.Pace(
                    job=self.launch.job,
                    incarnation=self.incarnation,
                    generation=progress.generation,
                    own_step_s=slowest,
                )
            )

    def kill_frozen(self, limits: HeartbeatTimeouts) -> None:
        """End ranks from which nothing has been heard for too long."""
        now_s = time.monotonic()
        for rank in self.ranks:
            if rank.line is None or rank.running is None or rank.finished or rank.left:
                continue
            if limits.frozen(now_s - rank.last_beat_s, rank.pid):
                rank.frozen = True
                rank.running.kill()


async def _within(limit_s: float, function: Callable[..., _Result], *arguments: Any) -> _Result | None:
    """What the function returns; None if it hangs for so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            return await in_daemon_thread(function, *arguments)
    return None


def tail(log: Path) -> str:
    """The end of what a rank printed."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""
