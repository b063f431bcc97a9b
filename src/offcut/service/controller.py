"""The controller's loop: an event is journalled, `control.step` answers it, the effects are carried out."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

import structlog

from offcut.cluster.base import Cluster
from offcut.control import State, nears_end, skip, step
from offcut.control.allocation import node_demand
from offcut.control.check_state import check_state
from offcut.errors import ClusterError, OffcutError, StoreError
from offcut.model import Allocation, effects, events
from offcut.model.events import Member
from offcut.plaintext import visible
from offcut.process import clocks
from offcut.service import audit, durability, recovery
from offcut.service.agent_messages import event_of, exit_of, launch_of, ready_of
from offcut.service.agents import AgentConnection, Agents
from offcut.service.clock import Clock
from offcut.service.effect_runner import EffectRunner
from offcut.service.event_gatherer import EventGatherer
from offcut.service.generation_sender import GenerationSender
from offcut.service.loss_history import LossHistory
from offcut.service.metrics.event_metrics import EventMetrics
from offcut.service.metrics.job_metrics import Metrics
from offcut.service.paths import StatePaths
from offcut.service.rendezvous import MeetingPlace, Rendezvous
from offcut.service.retention import Retention
from offcut.service.solver import Solver, SolverProcess
from offcut.service.started_workers import StartedWorkers
from offcut.service.supervise import Tasks
from offcut.service.telemetry import Telemetry
from offcut.service.throughput_reports import ThroughputReports
from offcut.store.highest_numbers import GivenNumbers
from offcut.store.journal import SNAPSHOT_EVERY, Journal, reason_of
from offcut.store.last_event import missing_tail
from offcut.wire import messages

_log = structlog.get_logger()

#: How often the jobs' samples are noted for the report.
_NOTE_S = 1.0


class Controller:
    """The running controller. All of it runs in one asyncio loop, and `handle` answers an event at once."""

    def __init__(
        self,
        state: State,
        journal: Journal,
        cluster: Cluster,
        paths: StatePaths,
        policy: str | None = None,
        *,
        host: str = "127.0.0.1",
        worker_umask: int | None = None,
        solver_process: SolverProcess | None = None,
        rendezvous: Callable[[Callable[[], None]], MeetingPlace] | None = None,
        snapshot_every: int | None = None,
    ) -> None:
        """`host`: the name under which members reach this machine. `solver_process` and `rendezvous` replace processes
        of the controller's own; `rendezvous` is given what to call with every new address."""
        self.state = state
        self.clock = Clock(state.now_s)
        self.metrics = Metrics()
        self.event_metrics = EventMetrics(state, self.clock.now())
        self.throughput = ThroughputReports(state)
        self._journal = journal
        self.history = journal.history
        self._snapshot_every = snapshot_every
        self._given = GivenNumbers(paths.numbers)
        self._telemetry = Telemetry(paths.telemetry, paths.older_telemetry)
        self.losses = LossHistory(paths.losses)
        self.cluster = cluster
        self._paths = paths
        self.tasks = Tasks()
        self.solver = Solver(self._solved, policy, state.settings.solve_limit_s, process=solver_process)
        self.agents = Agents(
            self._agent_gone, self._is_held, lambda node: self.event_metrics.agent_left(node, self.clock.now())
        )
        self.gatherer = EventGatherer(self._handle, self.agents.count)
        self._started_workers = StartedWorkers(state)
        self.rendezvous: MeetingPlace = (
            rendezvous(self._rendezvous_changed)
            if rendezvous is not None
            else Rendezvous(paths, self._rendezvous_changed, listen=host)
        )
        self.generations = GenerationSender(state, self.agents, self.metrics, self.rendezvous, self.clock.now)
        self._effects = EffectRunner(
            state=state,
            clock=self.clock,
            cluster=cluster,
            agents=self.agents,
            started_workers=self._started_workers,
            generations=self.generations,
            solver=self.solver,
            tasks=self.tasks,
            launch=lambda job: launch_of(job, paths.job(job.id), worker_umask),
            forget=self._forget,
            forget_losses=self.losses.forget,
            job_directory=paths.job,
            handle=self.handle,
        )
        self._retention = Retention(state, paths, journal, self.clock.now, self.handle)
        #: Set when the journal cannot be written: nothing may be decided that would be forgotten.
        self.unwritable: asyncio.Future[StoreError] = asyncio.get_running_loop().create_future()
        #: The controller is closing the cluster: its event stream may end.
        self.closing = False
        #: What was wrong with the journal when this controller started.
        self.journal_remarks = tuple(journal.remarks)
        #: Called after every event: live views listen here.
        self.on_change: list[Callable[[], None]] = []

    # -- life ---------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Continue from the journal's state. Call it first, because what agents report is later than the journal."""
        if self.clock.ahead_s:
            _log.warning("wall_clock_behind", by_s=round(self.clock.ahead_s, 3), but="the journal's time goes on")
        for progress in self._telemetry.last():
            step(self.state, progress)
        running = {job_id: len(self.state.jobs[job_id].state_holders) for job_id in self.state.started}
        self.metrics.training_already(self.clock.now(), running)
        given = self._given.read()
        written = max(given.event, self._journal.last_written())
        if written > self.state.event_id:
            self.journal_remarks += (missing_tail(self.state.event_id, written),)
        for remark in self.journal_remarks:
            _log.warning("journal", remark=remark)
        self.handle(recovery.first_event(self.state, given, self.clock.now()))

    async def run(self) -> None:
        """Compare the journal with the nodes that are held, then follow the cluster until cancelled."""
        self.tasks.keep("rendezvous", self.rendezvous.keep)
        self.tasks.keep("agents", self.agents.watch)
        self.tasks.keep("silent jobs", self._watch_silent)
        self.tasks.keep("telemetry", self._note_samples)
        self.tasks.keep("losses", lambda: self.losses.keep(self.state, self.clock.now))
        await recovery.reconcile(self.state, self.cluster, self.agents, self.clock.now, self.handle)
        self.tasks.keep("retention", self._retention.keep)
        # The solver starts afterwards, so that no answer comes before the held nodes are known.
        self.tasks.keep("solver", self.solver.run)
        async for seen in self.cluster.observe():
            event = replace(seen, time_s=self.clock.now())
            if isinstance(event, events.NodesChanged):
                self.gatherer.add(event, at_once=bool(event.wanted))
            else:
                self.handle(event)
        if not self.closing:
            raise ClusterError("The batch system reports no more events.", next_step="Start the controller again.")

    async def _watch_silent(self) -> None:
        while True:
            await asyncio.sleep(_NOTE_S)
            self._handle_all(self.throughput.silent(self.clock.now()))

    async def _note_samples(self) -> None:
        while True:
            await asyncio.sleep(_NOTE_S)
            self._telemetry.note(self.clock.now(), self.state)

    async def close(self) -> None:
        self.gatherer.flush()
        self.solver.close()
        await self.tasks.close()
        with suppress(StoreError):
            self._journal.snapshot(self.state)
        self._journal.close()

    # -- events in ----------------------------------------------------------------------------------------------------

    def handle(self, event: events.Event) -> bool:
        """Answer one event at once. Return False if that failed: the event is logged then and has changed nothing."""
        if isinstance(event, events.JobProgressed):
            self._progressed(event)
            return True
        self.gatherer.flush()
        return self._handle(event)

    def _handle(self, event: events.Event) -> bool:
        number, began_s = self.state.event_id + 1, clocks.steady_s()
        self.event_metrics.before(event)
        try:
            self._journal.append(number, event)
        except StoreError as error:
            if not self.unwritable.done():
                self.unwritable.set_result(error)
            raise
        answered = True
        try:
            caused = step(self.state, event)
        except Exception as error:
            answered = False
            caused = self._skip(number, event, error)
        if self.state.settings.check_state:
            caused += self._check(number, event, len(caused))
        # Nodes are released first, so that not even a slow disk keeps them from the queue.
        released = [node for effect in caused if isinstance(effect, effects.Release) for node in effect.nodes]
        if released:
            self._effects.release(tuple(dict.fromkeys(released)))
        self._secure(event, caused)
        for effect in caused:
            if not isinstance(effect, effects.Release):
                self._effects.carry_out(effect)
        told = [effect for effect in caused if isinstance(effect, effects.WriteLog)]
        if told:
            self._journal.append_log(self.state.now_s, told)
        if self.state.event_id % (self._snapshot_every or SNAPSHOT_EVERY) == 0:
            self._snapshot()
        self.cluster.set_demand(node_demand(self.state))
        self.event_metrics.after(clocks.steady_s() - began_s, answered)
        for listener in self.on_change:
            listener()
        return answered

    def _check(self, number: int, event: events.Event, index: int) -> list[effects.Effect]:
        """Log what is wrong with the state after this event. Return the lines for the log of the controller."""
        found = check_state(self.state)
        if found:
            _log.error("state_check_failed", number=number, answered=event, found=found)
        return [
            effects.WriteLog(
                cause=number,
                index=index + place,
                subject="controller",
                text=visible(f"after event {number} ({event.kind}) the state is wrong: {wrong}"),
            )
            for place, wrong in enumerate(found)
        ]

    def _secure(self, event: events.Event, caused: list[effects.Effect]) -> None:
        """Make sure that the event is on the disk before effects leave that a crash of the machine must not undo."""
        given = durability.gives_numbers(caused)
        if given:
            self._given.note(self.state)
        try:
            self.history.carry_out(caused)
            if given or durability.is_promised(event):
                self._journal.sync()
        except StoreError as error:
            if not self.unwritable.done():
                self.unwritable.set_result(error)
            raise

    def ask(self, event: events.Event) -> None:
        """Answer an event of a user who waits for it.

        Raises:
            OffcutError: The event could not be answered.
        """
        answered = self.handle(event)
        audit.note_event(self.state.event_id, event)
        if not answered:
            raise OffcutError(
                f"The controller could not answer this ({event.kind}): {self.state.skipped[-1].reason}.",
                next_step="Nothing has changed. This is a defect of offcut or of a plug-in: the log has the traceback.",
            )

    def _skip(self, number: int, event: events.Event, error: Exception) -> list[effects.Effect]:
        """Go back to the state before an event that cannot be answered, as every fold of the journal does."""
        _log.error("event_failed", number=number, kind=event.kind, exc_info=error)
        try:
            self._journal.mark_skipped(number, error)
            self.state.replace_with(self._journal.fold(until=number - 1))
        except OffcutError as failed:
            # The earlier state cannot be restored, so that nothing may be decided any more.
            told = failed if isinstance(failed, StoreError) else StoreError(failed.what, next_step=failed.next_step)
            if not self.unwritable.done():
                self.unwritable.set_result(told)
            raise told from error
        caused = skip(self.state, event, reason_of(error))
        self._snapshot()  # so that a later fold does not begin far back
        return caused

    def _snapshot(self) -> None:
        try:
            self._journal.snapshot(self.state)
        except StoreError as error:
            # The events lead to the same state; if they cannot be written either, the next one raises.
            _log.error("snapshot_failed", error=str(error))

    def _handle_all(self, found: Iterable[events.Event]) -> None:
        for event in list(found):
            self.handle(event)

    def _progressed(self, event: events.JobProgressed) -> None:
        step(self.state, event)
        self.metrics.progressed(event.time_s, event.job, event.samples)
        job = self.state.jobs.get(event.job)
        if job is None or job.job.goal_samples is None:
            return
        left, rate = job.job.goal_samples - event.samples, self.metrics.rate(event.time_s, event.job)
        left_s = 0.0 if left <= 0 else left / rate if rate > 0 else math.inf
        if nears_end(self.state, event.job, left_s):
            self.handle(events.JobNearsEnd(time_s=event.time_s, job=event.job, left_s=left_s))

    def _solved(self, version: int, answer: Allocation | str, late: bool) -> None:
        now_s = self.clock.now()
        if isinstance(answer, str):
            self.handle(events.SolveFailed(time_s=now_s, version=version, reason=answer))
        else:
            self.handle(events.Solved(time_s=now_s, version=version, allocation=answer, late=late))

    def _forget(self, job: str) -> None:
        """Drop what is kept of a job that has left the state."""
        self.metrics.forget(job)
        self.throughput.forget(job)
        self.generations.forget(job)

    def _is_held(self, node: str) -> bool:
        return node in self.state.nodes and self.state.nodes[node].phase != "idle"

    def _agent_gone(self, node: str, pilot: str) -> None:
        """Report the node as lost if it is still held."""
        if self.cluster.pilot(node) not in (pilot, None):
            return  # that pilot has ended, and the node has another one
        if self._is_held(node):
            _log.info("agent_gone", node=node)
            self.gatherer.add(events.NodesChanged(time_s=self.clock.now(), lost=(node,)))

    def _rendezvous_changed(self) -> None:
        self._handle_all(self.generations.store_changed())

    # -- agents -------------------------------------------------------------------------------------------------------

    def agent_connected(self, connection: AgentConnection, hello: messages.Hello) -> None:
        if hello.workers:
            self.gatherer.flush()  # events that wait may be about these workers
        self.agents.connected(connection)
        self.cluster.agent_connected(hello.node)
        hello = self._started_workers.accept_hello(hello)
        now_s = self.clock.now()
        node = self.state.nodes.get(hello.node)
        news = hello.incarnation > self.state.incarnations
        if node is not None and node.phase == "claimed" and not hello.workers and not news:
            self.gatherer.add(events.NodesBooted(time_s=now_s, nodes=(hello.node,)))
            return
        running = tuple(events.RunningWorker(w.job, w.incarnation, w.ready, w.generation) for w in hello.workers)
        for worker in hello.workers:
            if self._started_workers.runs(hello.node, worker.job, worker.incarnation):
                self.generations.note_address(hello.node, worker)
        self.handle(events.AgentReported(time_s=now_s, node=hello.node, workers=running, incarnation=hello.incarnation))
        self._started_workers.note_adopted(hello)
        # It may have missed generations while it was cut off.
        for job in {worker.job for worker in hello.workers}:
            self.generations.send_again(job, hello.node)

    def agent_said(self, node: str, message: messages.FromAgent) -> None:
        """Handle an agent's report. It is ignored if the agent cannot know what it says."""
        if not self._started_workers.is_credible(node, message):
            _log.debug("report_ignored", node=node, kind=message.kind)
            return
        now_s = self.clock.now()
        match message:
            case messages.Formed():
                self._formed(now_s, message)
            case messages.Pace():
                self._handle_all(self.throughput.pace(now_s, node, message))
            case messages.Progress():
                self.handle(event_of(now_s, node, message))
                self._handle_all(self.throughput.progress(now_s, message))
            case messages.Ready():
                self.generations.note_address(node, message)
                self.gatherer.add(ready_of(now_s, node, message))
            case messages.Exited():
                member = Member(node, message.incarnation)
                self.generations.forget_address(member)
                self._started_workers.note_ended(message.job, member)
                self.gatherer.add(exit_of(now_s, node, message))
            case messages.Trained() | messages.Broken() | messages.Note():
                self.handle(event_of(now_s, node, message))
            case messages.NodeWanted():
                # The batch system's own word comes later, or has come already.
                if self._is_held(node) and not self.closing:
                    self.gatherer.add(events.NodesChanged(time_s=now_s, wanted=(node,)))

    def _formed(self, now_s: float, message: messages.Formed) -> None:
        self.gatherer.flush()
        job = self.state.jobs.get(message.job)
        took_s = self.metrics.generation_formed(now_s, message.job, message.generation)
        counts = job is not None and not job.restarts and message.generation in job.forming
        redone = max(0, job.progress.step - message.step + 1) if job is not None and counts else 0
        self.handle(
            events.GenerationFormed(
                time_s=now_s,
                job=message.job,
                generation=message.generation,
                took_s=took_s or 0.0,
                step=message.step,
                redone=redone,
                fingerprint=message.fingerprint,
            )
        )
