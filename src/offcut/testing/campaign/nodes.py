"""Simulated agents and workers: the agent's own code in a simulated process, with simulated workers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from offcut.agent.agent import EXIT_WATCHDOG_S, LEAVE_LIMIT_S, Agent, AgentConfig
from offcut.agent.heartbeat_timeouts import HeartbeatTimeouts
from offcut.agent.worker_process import WorkerProcess
from offcut.errors import ClusterError
from offcut.membership.generation import Generation
from offcut.testing.campaign.collectives import Group
from offcut.testing.campaign.commons import Commons
from offcut.testing.campaign.ledger import JobLedger, TrainingStep
from offcut.testing.campaign.member import SimulatedMember
from offcut.testing.campaign.pipes import Pipe
from offcut.testing.campaign.simulated_loop import Process
from offcut.testing.campaign.worker_link import WorkerLink
from offcut.wire.worker_env import ENV_JOB, ENV_WORKER


class SimulatedAgent:
    """One agent on a node, from its start to its end: what the batch system sees of it."""

    def __init__(self, world: Commons, node: str, pilot: str) -> None:
        self.world = world
        self.node = node
        self.pilot = pilot
        self.pid = world.next_pid()
        self.process = Process(f"agent {pilot}", world.loop, world.wall_of(node))
        self.workers: dict[int, SimulatedWorker] = {}
        #: Whether it has been stopped: what it was told meanwhile it learns late.
        self.was_frozen = False
        self.agent: Agent | None = None
        self._ended: asyncio.Future[int] = world.loop.create_future()
        self._code = 0
        self.process.on_end.append(self._note_end)
        self.process.spawn(self._run())

    async def _run(self) -> None:
        await asyncio.sleep(self.world.draw(f"boot {self.pilot}", 0.2, 1.2))
        self.agent = Agent(
            AgentConfig(
                node=self.node,
                pilot=self.pilot,
                address_file=Path("address"),
                token_file=Path("token"),
                socket=Path("socket"),
                template=None,
                heartbeat_timeouts=HeartbeatTimeouts(is_stopped=self._is_stopped),
                orphan_limit_s=60.0,
            ),
            dial=self.world.network.dial(self.node, self.pilot, self.process),
            system=self,
            exit_watchdog=self,
        )
        await self.agent.serve()
        self._end(0)

    def _end(self, code: int) -> None:
        self._code = code
        self.process.end()

    def _note_end(self) -> None:
        for worker in list(self.workers.values()):
            worker.end(-signal.SIGKILL)
        if not self._ended.done():
            self._ended.set_result(self._code)
        self.world.on_agent_ended(self)

    def _is_stopped(self, pid: int) -> bool:
        worker = self.workers.get(pid)
        return worker is not None and worker.process.frozen

    # -- as the batch system sees it ----------------------------------------------------------------------------------

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def signal(self, number: int) -> None:
        """Send SIGTERM: the node is wanted, or released."""
        self.world.on_wanted(self)
        self.world.trace.event("signal", f"{number} to {self.process.name}")
        self.process.call(self._on_signal)

    def _on_signal(self) -> None:
        if self.agent is None:  # it handles no signals yet
            self._end(-signal.SIGTERM)
            return
        self.begin()
        self.agent.node_wanted()

    def kill(self) -> None:
        self.world.trace.event("signal", f"SIGKILL to {self.process.name}")
        self._end(-signal.SIGKILL)

    # -- what ends it in time: see `agent_exit_watchdog.Watchdog` -----------------------------------------------------

    def listen(self) -> None:
        """Do nothing: signals are simulated."""

    def begin(self) -> None:
        self.process.call(self._end, 0, after_s=LEAVE_LIMIT_S + EXIT_WATCHDOG_S)

    # -- the node, as its agent uses it: see `agent.node_system.NodeSystem` -------------------------------------------

    async def start(self, process: WorkerProcess) -> SimulatedWorker:
        await asyncio.sleep(self.world.draw(f"start {self.pilot}", 0.005, 0.05))
        if self.world.start_fails(self.node):
            raise ClusterError("train.py could not be started: no such file.")
        return SimulatedWorker(self, process.env[ENV_JOB], process.env[ENV_WORKER])

    async def make_directory(self, path: Path) -> None:
        await asyncio.sleep(0.001)

    async def kill_escaped(self, mark: str) -> None:
        await asyncio.sleep(0.001)

    async def last_output(self, log: Path) -> str:
        await asyncio.sleep(0.001)
        return "RuntimeError: it broke"

    async def disk_trouble(self, directory: Path, said: str) -> str:
        await asyncio.sleep(0.001)
        return self.world.disk_trouble()

    @contextmanager
    def reserve_port(self, host: str) -> Iterator[int]:
        yield 20_000 + self.world.next_pid() % 10_000

    async def gloo_env(self, env: Mapping[str, str], host: str) -> dict[str, str]:
        await asyncio.sleep(0.001)
        return {}


class SimulatedWorker:
    """One worker process, and the simulated member in it: see `agent.launch.Running`."""

    def __init__(self, agent: SimulatedAgent, job: str, name: str) -> None:
        self.agent = agent
        self.world = agent.world
        self.job = job
        self.name = name
        self.pid = self.world.next_pid()
        self.process = Process(f"worker {name}", self.world.loop, self.world.wall_of(agent.node))
        agent.workers[self.pid] = self
        self.world.on_worker_started(agent)
        self._ended: asyncio.Future[int] = self.world.loop.create_future()
        self.member: SimulatedMember | None = None
        self.process.spawn(self._run())

    async def _run(self) -> None:
        world, agent = self.world, self.agent
        random = world.stream(f"worker {self.name}")
        await asyncio.sleep(random.uniform(0.1, 0.5))
        assert agent.agent is not None
        pipe = Pipe(
            world.loop, (self.process, agent.process), (self.pid, agent.pid), lambda: random.uniform(1e-4, 1e-3)
        )
        agent.process.spawn(agent.agent.serve_worker(pipe.readers[1], pipe.writers[1]))  # type: ignore[arg-type]
        ledger = world.ledger(self.job)
        link = WorkerLink(self.name, pipe.readers[0], pipe.writers[0], lambda: self.end(3))
        self.member = member = SimulatedMember(
            link, ledger, self, random, checkpoint_age_s=world.checkpoint_age_s, step_s=ledger.step_s
        )
        member.spawn = self.process.spawn  # type: ignore[assignment]
        self.process.spawn(link.read())
        self.process.spawn(member.beat_forever())
        if world.never_ready(self.agent.node):
            await asyncio.sleep(1e9)
        code = await member.run(random.uniform(0.2, 2.0), random.uniform(0.1, 2.0))
        self.end(code)

    def end(self, code: int) -> None:
        """End the process; its agent sees that a moment later."""
        if self.process.alive:
            self.process.end()
            self.world.trace.note("worker", f"{self.name} ends with {code}")
            self.agent.workers.pop(self.pid, None)
            self.agent.process.call(self._settle, code, after_s=0.002)

    def _settle(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    # -- see `agent.launch.Running` -----------------------------------------------------------------------------------

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def signal(self, number: int) -> None:
        if number == signal.SIGTERM:
            self.end(-number)

    def kill(self) -> None:
        self.end(-signal.SIGKILL)

    # -- see `campaign.member.Surroundings` ---------------------------------------------------------------------------

    def group(self, generation: Generation, rank: int) -> Group:
        assert self.member is not None
        state = self.world.group_state(generation)
        state.join(rank, self.process)
        return Group(state, rank, lambda: False, self.member.link.watch)

    def begins(self, ledger: JobLedger, worker: str, state: TrainingStep | None) -> None:
        assert self.member is not None
        newest = self.member.link.newest
        ledger.begun = max(ledger.begun, 0 if newest is None else newest.generation)
        self.world.on_training_begun(ledger, worker, state)

    def stable(self, ledger: JobLedger, worker: str, state: TrainingStep | None) -> None:
        assert self.member is not None
        group = self.member.group
        if group is not None and group.membership.generation < max(ledger.mark, ledger.begun):
            return  # it is cut off, and does not know that the job has gone on elsewhere: nothing of it counts
        for wrong in ledger.note_stable(state, worker):
            self.world.violation(wrong)

    def exit(self, code: int) -> None:
        self.end(code)
