"""One job's workers on this node, for scripts that have a session."""

from __future__ import annotations

import asyncio
from pathlib import Path

from offcut.agent import devices
from offcut.agent.heartbeat_timeouts import HeartbeatTimeouts
from offcut.agent.node_system import NodeSystem
from offcut.agent.rank import Rank
from offcut.agent.rank_processes import Ended, Outcome, RankProcesses, StableStep
from offcut.process import clocks
from offcut.wire import messages, worker_messages
from offcut.wire.worker_env import ENV_AGENT, ENV_WORKER

#: A node reports its pace at most this often, over at least this number of steps.
_PACE_S = 2.0
_PACE_STEPS = 5


class SessionWorkers:
    """Workers that connect to the agent's `socket`, and are told generations over that connection."""

    def __init__(self, processes: RankProcesses, socket: Path) -> None:
        self.processes = processes
        self.address = ""
        self.newest_generation = 0
        self._socket = socket
        self._newest: messages.NewGeneration | None = None
        self._stable = StableStep()
        self._told_ready = False
        self._paced_s = 0.0

    @property
    def ready(self) -> bool:
        """Whether every rank has booted."""
        return all(rank.ready for rank in self.processes.ranks)

    async def run(self, system: NodeSystem) -> None:
        """Start every rank, wait until all are gone, and report how they ended."""
        ended = await self.processes.run(system, prepare=self._prepare, rank_env=self._rank_env, on_exit=self._on_exit)
        await self.processes.report_exit(system, *self._outcome(ended), self._stable)

    async def _prepare(self) -> None:
        """Return at once: nothing has to be waited for, because the ranks boot before a generation includes them."""

    def _rank_env(self, rank: Rank, local_rank: int) -> dict[str, str]:
        env = self.processes.env
        return {
            **env,
            **devices.rank_env(env, local_rank, len(self.processes.ranks)),
            ENV_AGENT: str(self._socket),
            ENV_WORKER: rank.name,
            "LOCAL_RANK": str(local_rank),
        }

    def _on_exit(self, rank: Rank, code: int) -> None:
        if code != 0 or not (rank.finished or rank.left):
            # The node's ranks are in a generation together: without one of them the others cannot train.
            self.processes.kill()

    def _outcome(self, ended: Ended) -> tuple[Outcome, str, int | None]:
        ranks = self.processes.ranks
        if ended.error:
            return "failed", ended.error, None
        if any(rank.frozen for rank in ranks):
            return "lost", "it froze and was killed", None
        if any(rank.hung for rank in ranks):
            limit_s = self.processes.launch.hang_limit_s
            return "failed", f"hung: its script did not return to its session for {limit_s:g} s", None
        if self.processes.leaving or all(rank.left for rank in ranks):
            return "left", "", None
        raised = [(rank, code) for rank, code in zip(ranks, ended.codes, strict=False) if code > 0]
        if raised:
            rank, code = raised[0]
            return "failed", rank.last_output or "no output", code
        killed = [code for code in ended.codes if code < 0]
        if killed:
            return "lost", f"killed by signal {-killed[0]}", killed[0]
        if all(rank.finished for rank in ranks):
            return "finished", "", 0
        early = (
            "the script ended before its session did; does it loop over session.epochs() or offcut.torch.epochs()? "
            "One without a session needs mode 'restart'."
        )
        return "failed", early, None

    # -- from the controller and the queue --------------------------------------------------------------------------

    def set_generation(self, generation: messages.NewGeneration) -> None:
        """Tell the workers the job's newest generation."""
        self._newest = generation
        for rank in self.processes.ranks:
            rank.send(generation)

    def leave(self, limit_s: float, *, node_wanted: bool = False) -> None:
        """Tell members to leave at their step boundary; kill ranks that are in no generation, which hold no state."""
        if not self.processes.leave_within(limit_s):
            return
        for rank in self.processes.ranks:
            if rank.ready:
                rank.send(worker_messages.Leave(limit_s=limit_s, node_wanted=node_wanted))
            elif rank.running is not None:
                rank.running.kill()

    # -- from the workers -------------------------------------------------------------------------------------------

    def connected(self, rank: Rank, connection: asyncio.StreamWriter, pid: int) -> None:
        rank.line = connection
        rank.pid = pid
        rank.last_beat_s = clocks.steady_s()
        if self._newest is not None:
            rank.send(self._newest)

    def on_message(self, rank: Rank, message: worker_messages.FromWorker) -> None:
        """Note what the worker says, and report to the controller what it should hear."""
        rank.last_beat_s = clocks.steady_s()
        match message:
            case worker_messages.WorkerReady():
                self._on_ready(rank)
            case worker_messages.Beat():
                self._on_beat(rank, message)
            case worker_messages.WorkerFormed():
                self.processes.report(
                    messages.Formed(
                        job=self.processes.launch.job,
                        generation=message.generation,
                        step=message.step,
                        fingerprint=message.fingerprint,
                    )
                )
            case worker_messages.WorkerBroken():
                self.processes.report(
                    messages.Broken(
                        job=self.processes.launch.job,
                        incarnation=self.processes.incarnation,
                        generation=message.generation,
                        detail=message.detail,
                        unreachable=message.unreachable,
                    )
                )
            case worker_messages.WorkerFinished():
                rank.finished = True
                if message.first:
                    self.processes.report(
                        messages.Trained(
                            job=self.processes.launch.job,
                            generation=message.generation,
                            step=message.step,
                            samples=self._stable.samples,
                        )
                    )
            case worker_messages.WorkerLeft():
                rank.left = True
            case worker_messages.WorkerNote():
                self.processes.report(messages.Note(job=self.processes.launch.job, text=message.text))
            case worker_messages.WorkerHello():
                pass  # said once, when it connected

    def _on_ready(self, rank: Rank) -> None:
        rank.ready = True
        if self.processes.leaving:
            rank.send(worker_messages.Leave(limit_s=self.processes.left_s))
        elif self.ready and not self._told_ready:
            self._told_ready = True
            self.processes.report(messages.Ready(job=self.processes.launch.job, incarnation=self.processes.incarnation))

    def _on_beat(self, rank: Rank, beat: worker_messages.Beat) -> None:
        if beat.script_s > self.processes.launch.hang_limit_s and rank.running is not None:
            rank.hung = True
            rank.running.kill()
        progress = beat.progress
        if progress is None:
            return
        self._stable = StableStep(generation=progress.generation, step=progress.step, samples=progress.samples)
        if progress.first:
            self.processes.report(
                messages.Progress(
                    job=self.processes.launch.job,
                    generation=progress.generation,
                    step=progress.step,
                    samples=progress.samples,
                    loss=progress.loss,
                    total_steps=progress.total_steps,
                    total_samples=progress.total_samples,
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
        if steps < _PACE_STEPS or clocks.steady_s() - self._paced_s < _PACE_S:
            return
        rank.own_step_s = max(0.0, progress.own_s - rank.pace_from.own_s) / steps
        rank.pace_from = progress
        if all(other.own_step_s is not None for other in self.processes.ranks):
            self._paced_s = clocks.steady_s()
            slowest = max(other.own_step_s or 0.0 for other in self.processes.ranks)
            for other in self.processes.ranks:
                other.own_step_s = None
            self.processes.report(
                messages.Pace(
                    job=self.processes.launch.job,
                    incarnation=self.processes.incarnation,
                    generation=progress.generation,
                    own_step_s=slowest,
                )
            )

    def kill_frozen(self, limits: HeartbeatTimeouts) -> None:
        """End ranks from which nothing has been heard for too long."""
        now_s = clocks.steady_s()
        for rank in self.processes.ranks:
            if rank.line is None or rank.running is None or rank.finished or rank.left:
                continue
            if limits.frozen(now_s - rank.last_beat_s, rank.pid):
                rank.frozen = True
                rank.running.kill()
