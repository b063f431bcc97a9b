"""The process on a claimed node.

It obeys the queue by itself: at SIGTERM its workers leave at their next step boundary or within `leave_limit_s`,
whichever is first; then it kills what is left and exits, with or without a controller.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from offcut.agent.agent_exit_watchdog import ExitWatchdog, Watchdog
from offcut.agent.controller_dial import Dial, WebSocketDial
from offcut.agent.controller_link import ControllerLink
from offcut.agent.heartbeat_timeouts import HeartbeatTimeouts
from offcut.agent.job_workers import JobWorkers
from offcut.agent.node_system import LocalNode, NodeSystem
from offcut.agent.rank_processes import RankProcesses
from offcut.agent.restart_workers import RestartWorkers
from offcut.agent.session_workers import SessionWorkers
from offcut.errors import ProtocolError
from offcut.process import unix_socket
from offcut.wire import messages
from offcut.wire.worker_messages import FromWorker, WorkerHello, from_worker

_log = structlog.get_logger()

#: A wanted node's workers are killed after this. With the rest of the release it stays below a second.
LEAVE_LIMIT_S = 0.8
#: How long the last reports may take when the agent exits.
_LAST_REPORTS_S = 0.1
#: How long an orderly end may take beyond `leave_limit_s`; then the agent is ended by force.
EXIT_WATCHDOG_S = 0.15
#: See `AgentConfig`.
EMPTY_LIMIT_S = 30.0
ORPHAN_LIMIT_S = 600.0
#: The longest line that a worker may send. Workers cut their texts far below it.
_LINE_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    node: str
    #: The name of the pilot that holds the node; no other hold on it has that name.
    pilot: str
    address_file: Path
    token_file: Path
    #: Where the agent listens for its workers.
    socket: Path
    template: Path | None
    leave_limit_s: float = LEAVE_LIMIT_S
    #: Without a controller the agent leaves by itself after this if its node has no worker, and in any case.
    empty_limit_s: float = EMPTY_LIMIT_S
    orphan_limit_s: float = ORPHAN_LIMIT_S
    heartbeat_timeouts: HeartbeatTimeouts = field(default_factory=HeartbeatTimeouts)
    #: Added to the environment of every worker.
    worker_env: tuple[tuple[str, str], ...] = ()


class Agent:
    """`dial` reaches the controller, `system` is the node, `exit_watchdog` ends this process in time.

    Each of them that is not given is as `config` says.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        dial: Dial | None = None,
        system: NodeSystem | None = None,
        exit_watchdog: Watchdog | None = None,
    ) -> None:
        self._config = config
        self._system = system or LocalNode(config.template, config.socket)
        self._jobs: dict[tuple[str, int], JobWorkers] = {}
        #: Workers start one after another: a node that passes from one job to the next is empty in between.
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._controller = ControllerLink(
            dial or WebSocketDial(config.address_file, config.token_file), self._hello, self._on_message
        )
        self._leaving = asyncio.Event()
        self._exit_watchdog: Watchdog = exit_watchdog or ExitWatchdog(
            config.leave_limit_s + EXIT_WATCHDOG_S, self._on_signal, self._groups
        )
        #: The highest incarnation that was ever started here.
        self._incarnation = 0

    async def run(self) -> None:
        """Listen for signals and workers, and serve until the node is wanted or the controller refuses this agent."""
        self._loop = asyncio.get_running_loop()
        self._exit_watchdog.listen()
        server = await asyncio.start_unix_server(
            self.serve_worker, sock=unix_socket.listen(self._config.socket), limit=_LINE_LIMIT_BYTES
        )
        await self.serve()
        server.close()
        with suppress(FileNotFoundError):
            self._config.socket.unlink()

    async def serve(self) -> None:
        """Obey the controller until the node is wanted, or the controller refuses this agent; then release the node."""
        line = asyncio.create_task(self._controller.run())
        watches = [asyncio.create_task(self._watch_workers()), asyncio.create_task(self._watch_controller())]
        leaving = asyncio.create_task(self._leaving.wait())
        # A watch that fails ends the agent too, because a node must not be held without it.
        await asyncio.wait((line, leaving, *watches), return_when=asyncio.FIRST_COMPLETED)
        self._exit_watchdog.begin()
        await self._release_node()
        for task in (line, leaving, *watches):
            task.cancel()

    def _on_signal(self) -> None:
        """Begin to leave. Called in another thread when a signal has come."""
        with suppress(RuntimeError):  # the loop has been closed: it has left
            self._loop.call_soon_threadsafe(self.node_wanted)

    def node_wanted(self) -> None:
        """Begin to release the node, because the queue wants it."""
        # A member that does not wait for its step boundary waits for the generation that the controller now sets.
        if self._jobs and not self._leaving.is_set():
            self._controller.report(messages.NodeWanted())
        self._leaving.set()

    def _groups(self) -> list[int]:
        """Return the process groups of all workers. Called in another thread."""
        return [
            running.pid
            for workers in list(self._jobs.values())
            for rank in workers.processes.ranks
            if (running := rank.running) is not None
        ]

    async def _release_node(self) -> None:
        limit_s = self._config.leave_limit_s
        _log.info("leaving", node=self._config.node, jobs=len(self._jobs))
        for workers in self._jobs.values():
            workers.leave(limit_s, node_wanted=True)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=limit_s)
        for workers in self._jobs.values():
            workers.processes.kill()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_REPORTS_S)
        await self._controller.drained(_LAST_REPORTS_S)

    # -- the controller ---------------------------------------------------------------------------------------------

    def _hello(self) -> messages.Hello:
        return messages.Hello(
            node=self._config.node,
            pilot=self._config.pilot,
            workers=tuple(
                messages.WorkerReport(
                    job=job,
                    incarnation=incarnation,
                    ready=workers.ready,
                    address=workers.address,
                    generation=workers.newest_generation,
                )
                for (job, incarnation), workers in self._jobs.items()
            )
            # Workers whose end has not been reported yet: the controller must not think that they vanished.
            + tuple(
                messages.WorkerReport(
                    job=exited.job, incarnation=exited.incarnation, ready=True, generation=exited.generation
                )
                for exited in self._controller.unsent_exits()
            ),
            incarnation=self._incarnation,
        )

    def _on_message(self, message: messages.ToAgent) -> None:
        match message:
            case messages.Start():
                self._start(message)
            case messages.Stop():
                workers = self._jobs.get((message.job, message.incarnation))
                if workers is not None:
                    workers.leave(message.limit_s)
            case messages.ReleaseNode():
                self._leaving.set()
            case messages.NewGeneration():
                for (job, _), workers in self._jobs.items():
                    if job == message.job and message.generation >= workers.newest_generation:
                        workers.newest_generation = message.generation
                        workers.set_generation(message)

    def _start(self, start: messages.Start) -> None:
        key = (start.launch.job, start.incarnation)
        if key in self._jobs or self._leaving.is_set():
            return
        processes = RankProcesses(self._config.node, start, dict(self._config.worker_env), self._controller.report)
        workers: JobWorkers
        if start.launch.mode == "restart":
            workers = RestartWorkers(processes, self._controller.host)
        else:
            workers = SessionWorkers(processes, self._config.socket)
        self._jobs[key] = workers
        self._incarnation = max(self._incarnation, start.incarnation)
        task = asyncio.create_task(self._run(key, workers))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, key: tuple[str, int], workers: JobWorkers) -> None:
        try:
            async with self._turn:
                await workers.run(self._system)
        finally:
            self._jobs.pop(key, None)

    # -- the workers ------------------------------------------------------------------------------------------------

    async def serve_worker(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one worker's messages until it closes. A line that cannot be read ends the connection and the worker."""
        try:
            hello = await _read(reader)
            if not isinstance(hello, WorkerHello):
                return
            for workers in list(self._jobs.values()):
                rank = workers.processes.rank(hello.worker)
                if rank is not None:
                    workers.connected(rank, writer, unix_socket.peer_pid(writer.get_extra_info("socket")))
                    while message := await _read(reader):
                        workers.on_message(rank, message)
                    return
        except ProtocolError as error:
            _log.warning("worker_not_understood", node=self._config.node, error=str(error))
        except (OSError, ValueError):
            pass  # the connection broke, or a line is too long
        finally:
            writer.close()

    async def _watch_controller(self) -> None:
        """Return when there has been no controller for too long."""
        config = self._config
        period_s = min(1.0, config.empty_limit_s / 10, config.orphan_limit_s / 10)
        while True:
            await asyncio.sleep(period_s)
            away_s = self._controller.away_s()
            if away_s > (config.orphan_limit_s if self._jobs else config.empty_limit_s):
                _log.warning("no_controller", node=config.node, away_s=round(away_s), workers=bool(self._jobs))
                return

    async def _watch_workers(self) -> None:
        """Kill frozen workers, for as long as the agent runs."""
        limits = self._config.heartbeat_timeouts
        period_s = limits.stopped_s / 10
        while True:
            before_s = asyncio.get_running_loop().time()
            await asyncio.sleep(period_s)
            # If this process itself did not get to run, its workers' silence proves nothing.
            if asyncio.get_running_loop().time() - before_s < 3 * period_s:
                for workers in self._jobs.values():
                    workers.kill_frozen(limits)


async def _read(reader: asyncio.StreamReader) -> FromWorker | None:
    """Return a worker's next message; None when it has closed the connection."""
    line = await reader.readline()
    return from_worker(line) if line else None
