"""The controller in a simulated process: the service's own code, its journal on a real file, its peers simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from offcut.cluster.base import Cluster
from offcut.cluster.local.adapter import LocalCluster
from offcut.cluster.slurm.adapter import SlurmCluster
from offcut.cluster.slurm.site import SlurmSite
from offcut.errors import AllocationError, OffcutError
from offcut.model import Allocation
from offcut.service.agent_protocol import AgentProtocol
from offcut.service.call_process import CallDiedError, CallTimeoutError
from offcut.service.controller import Controller
from offcut.service.paths import StatePaths
from offcut.store.journal import Journal
from offcut.testing.campaign.commons import Commons
from offcut.testing.campaign.journal_disk import JournalDisk
from offcut.testing.campaign.local_queue import LocalQueue
from offcut.testing.campaign.network import ControllerSide
from offcut.testing.campaign.simulated_loop import Process
from offcut.testing.campaign.slurm_queue import SimulatedCommands, SlurmQueue
from offcut.wire.credentials import Identity

_Result = TypeVar("_Result")


class SimulatedCredentials:
    """Notes whose agents may dial."""

    def __init__(self, world: Commons, directory: Path) -> None:
        self._issued = world.network.issued
        self.directory = directory

    def issue(self, node: str, pilot: str) -> None:
        self._issued.add(pilot)

    def withdraw_later(self, pilot: str) -> None:
        self._issued.discard(pilot)

    def keep_only(self, pilots: Iterable[str]) -> None:
        self._issued.intersection_update(pilots)


class SimulatedSolver:
    """Solves in this process, after a while; see `service.solver.SolverProcess`. `trouble` says what is wrong with it:
    empty, `slow`, `dies` or `fails`."""

    pid = None

    def __init__(self, world: Commons) -> None:
        self._world = world
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        await asyncio.sleep(0.3)

    async def call(self, function: Callable[..., _Result], *arguments: Any, limit_s: float) -> _Result:
        async with self._turn:
            world = self._world
            trouble = world.solver_trouble
            if trouble:
                world.trace.fault(f"solver {trouble}", "")
            if trouble == "slow":
                delay_s = world.draw("solver", 0.5, 2.0) * limit_s
                await asyncio.sleep(min(delay_s, limit_s))
                if delay_s > limit_s:
                    raise CallTimeoutError("It did not answer in time and was killed.")
            else:
                await asyncio.sleep(world.draw("solver", 0.001, 0.05))
            if trouble == "dies":
                raise CallDiedError("Its process died.")
            if trouble == "fails":
                raise AllocationError("The solver is out of memory.")
            answer: Any = function(*arguments)
            if isinstance(answer, Allocation):
                answer = replace(answer, solve_ms=0.0)
            world.trace.event("solver", f"{getattr(answer, 'nodes', '')}")
            result: _Result = answer
            return result

    def close(self) -> None: ...


class SimulatedStore:
    """The rendezvous store, as the controller knows it; see `service.rendezvous.MeetingPlace`."""

    def __init__(self, world: Commons, changed: Callable[[], None]) -> None:
        self._world = world
        self._changed = changed
        self.address: str | None = None

    def secret(self, job: str, generation: int) -> str:
        return f"secret of {job} {generation}"

    async def keep(self) -> None:
        while True:
            if self.address != self._world.store_address:
                self.address = None
                await asyncio.sleep(self._world.draw("store", 0.05, 1.0))
                self.address = self._world.store_address
                self._changed()
            await asyncio.sleep(0.5)

    def end(self) -> None: ...


class ControllerWatch(Protocol):
    """What is told of a controller's life."""

    def controller_begins(self, controller: Controller) -> None: ...

    def controller_answered(self, controller: Controller) -> None: ...

    def controller_ended(self, run: ControllerRun) -> None: ...


class ControllerRun:
    """One life of the controller. It begins with the journal that the one before it left."""

    def __init__(self, world: Commons, number: int, queue: LocalQueue | SlurmQueue, watch: ControllerWatch) -> None:
        self.world = world
        self._queue = queue
        self._watch = watch
        self.process = Process(f"controller {number}", world.loop, world.wall_of("controller"))
        self.controller: Controller | None = None
        self.ready = False
        self._journal: Journal | None = None
        self._disk = JournalDisk(lambda: world.loop.time() < world.full_disk_until_s, world.stream("disk"))
        #: The power of its computer has failed.
        self.power_lost = False
        self.process.on_end.append(self._note_end)
        self.process.spawn(self._run())

    async def _run(self) -> None:
        world = self.world
        await asyncio.sleep(world.draw("controller", 0.3, 1.5))
        try:
            paths = StatePaths(world.directory)
            paths.prepare()
            self._journal = journal = self._disk.open(paths.journal)
            state = journal.load(world.settings)
            cluster = await self._connect(paths)
            self.controller = controller = Controller(
                state,
                journal,
                cluster,
                paths,
                solver_process=SimulatedSolver(world),
                rendezvous=lambda changed: SimulatedStore(world, changed),
                snapshot_every=100,
            )
            controller.on_change.append(self._changed)
            self._watch.controller_begins(controller)
            controller.begin()
            controller.tasks.need("cluster", controller.run)
            world.network.listener = self
            self.ready = True
            failures = (controller.unwritable, controller.tasks.fatal)
            await asyncio.wait(failures, return_when=asyncio.FIRST_COMPLETED)
            for failure in failures:
                if failure.done():
                    world.trace.note("controller", f"cannot go on: {failure.result()}")
        except OffcutError as error:
            world.trace.note("controller", f"cannot start: {error}")
        self.process.end()

    async def _connect(self, paths: StatePaths) -> Cluster:
        world, queue = self.world, self._queue
        credentials: Any = SimulatedCredentials(world, paths.credentials)
        if isinstance(queue, SlurmQueue):
            site = SlurmSite(
                partition="idle",
                mode="preemptible",
                interval_s=2.0,
                least_hole_s=60.0,
                pending_limit_s=20.0,
                bench_s=60.0,
                pause_s=10.0,
                command_limit_s=5.0,
            )
            commands = SimulatedCommands(world, queue)
            slurm = SlurmCluster(site, paths.pilots, paths.root, paths.address, credentials, commands)
            await slurm.connect()
            return slurm
        local = LocalCluster(
            paths.cluster,
            paths.address,
            credentials,
            open_connection=lambda: queue.open_connection(self.process),
            new_id=lambda: f"{world.next_pid():x}",
        )
        await local.connect()
        return local

    def _changed(self) -> None:
        assert self.controller is not None
        self._watch.controller_answered(self.controller)

    def _note_end(self) -> None:
        if self._journal is not None and self.power_lost:
            self._disk.lose_power(self._journal)
        elif self._journal is not None:
            self._journal._db.close()
        self._watch.controller_ended(self)

    def admit(self, node: str, pilot: str, side: ControllerSide) -> AgentProtocol[ControllerSide]:
        """See `network.Listener`."""
        assert self.controller is not None
        return AgentProtocol(self.controller, Identity(node, pilot), side, lambda _: None)
