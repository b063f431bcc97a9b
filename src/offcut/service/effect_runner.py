"""Carries out the effects that `control.step` returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, assert_never

import structlog

from offcut.cluster.base import Cluster
from offcut.control import State
from offcut.errors import OffcutError
from offcut.model import Job, effects, events
from offcut.model.events import Timer
from offcut.process.daemon_thread import in_daemon_thread
from offcut.service.agents import Agents
from offcut.service.clock import Clock
from offcut.service.generation_sender import GenerationSender
from offcut.service.job_files import delete_job_files
from offcut.service.solver import Solver
from offcut.service.started_workers import StartedWorkers
from offcut.service.state_copies import StateCopies
from offcut.service.supervise import Tasks
from offcut.wire import messages

_log = structlog.get_logger()


class EffectRunner:
    """Sends orders to the cluster, the agents and the solver, and sets timers."""

    def __init__(
        self,
        *,
        state: State,
        clock: Clock,
        cluster: Cluster,
        agents: Agents,
        started_workers: StartedWorkers,
        generations: GenerationSender,
        solver: Solver,
        tasks: Tasks,
        launch: Callable[[Job], messages.Launch],
        forget: Callable[[str], None],
        forget_losses: Callable[[str], None],
        job_directory: Callable[[str], Path],
        handle: Callable[[events.Event], object],
    ) -> None:
        """`launch` says how a job's workers are started; `forget` is called for a job that has left the state,
        `forget_losses` for one that is forgotten altogether, `handle` when a timer is due or a state is copied."""
        self._state = state
        self._clock = clock
        self._cluster = cluster
        self._agents = agents
        self._started_workers = started_workers
        self._generations = generations
        self._solver = solver
        self._tasks = tasks
        self._launch = launch
        self._forget = forget
        self._forget_losses = forget_losses
        self._job_directory = job_directory
        self._handle = handle
        self._copies = StateCopies(state, job_directory, clock.now, handle)

    def carry_out(self, effect: effects.Effect) -> None:
        """Start what the effect asks for, and return at once."""
        match effect:
            case effects.Release():
                self.release(effect.nodes)
            case effects.Claim():
                self._started_workers.note_claimed(effect.nodes)
                self._tasks.once("cluster call", self._cluster_call(self._cluster.claim(effect.nodes, effect.until_s)))
            case effects.SetGeneration():
                self._generations.send(effect)
            case effects.AbandonOlderGenerations():
                for member in effect.members:
                    self._generations.send_again(effect.job, member.node)
            case effects.StartWorkers():
                job = self._state.jobs[effect.job].job
                launch = self._launch(job)
                for member in effect.members:
                    self._started_workers.note_started(effect.job, member)
                    self._agents.send(member.node, messages.Start(launch=launch, incarnation=member.incarnation))
            case effects.StopWorkers():
                self._generations.flush(effect.job)  # so that a member hears first which members go on without it
                for member in effect.members:
                    self._agents.send(
                        member.node,
                        messages.Stop(job=effect.job, incarnation=member.incarnation, limit_s=effect.limit_s),
                    )
            case effects.Solve():
                self._solver.ask(effect.version, effect.problem)
            case effects.SetTimer():
                self._arm(effect.timer, effect.at_s)
            case effects.ArchiveJob():
                self._forget(effect.job.job.id)
            case effects.ForgetJobs():
                for job_id in effect.jobs:
                    self._forget(job_id)
                    self._forget_losses(job_id)
                if effect.files:
                    self._tasks.once("deletion of jobs' files", self._delete_files(effect.jobs))
            case effects.CopyJobState():
                self._tasks.once("copy of a trial's state", self._copies.copy(effect))
            case effects.WriteLog():
                _log.info("story", subject=effect.subject, text=effect.text)
            case _:
                assert_never(effect)

    def release(self, nodes: tuple[str, ...]) -> None:
        """Release the nodes with one call.

        Their agents are told at once, and the batch system ends their pilots in any case.
        """
        message = messages.ReleaseNode()
        for node in nodes:
            self._agents.send(node, message)
        self._tasks.once("cluster call", self._cluster_call(self._cluster.release(nodes)))

    async def _cluster_call(self, call: Coroutine[Any, Any, None]) -> None:
        try:
            await call
        except OffcutError as error:
            if not self._tasks.closing:  # failures while the cluster closes do not matter
                _log.error("cluster_call_failed", error=str(error))

    async def _delete_files(self, jobs: tuple[str, ...]) -> None:
        for job in jobs:
            await in_daemon_thread(delete_job_files, self._job_directory(job))

    def _arm(self, timer: Timer, at_s: float) -> None:
        def fire() -> None:
            if self._state.timers.get(timer) == at_s:
                self._handle(events.TimerFired(time_s=max(self._clock.now(), at_s), timer=timer))

        asyncio.get_running_loop().call_later(max(0.0, at_s - self._clock.now()), fire)
