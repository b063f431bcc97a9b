"""The simulated world of one seed: a controller, a batch system, agents, workers, a network, and their troubles.

Random numbers come in streams that are named after what they decide, so that leaving a fault out changes little else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from random import Random

from offcut.control import Settings
from offcut.membership.generation import Generation
from offcut.service.controller import Controller
from offcut.testing.campaign.collectives import GroupState
from offcut.testing.campaign.controller_run import ControllerRun
from offcut.testing.campaign.invariants import Invariants
from offcut.testing.campaign.ledger import JobLedger, TrainingStep
from offcut.testing.campaign.local_queue import LocalQueue
from offcut.testing.campaign.network import Network
from offcut.testing.campaign.nodes import SimulatedAgent
from offcut.testing.campaign.simulated_loop import SimulatedLoop, WallClock
from offcut.testing.campaign.trace import Trace

#: The wall clock at the beginning: 2026-01-01.
_START_S = 1_767_225_600.0


class ViolationError(Exception):
    """An invariant does not hold."""


class World:
    """`directory` is the controller's state directory, empty at first."""

    def __init__(self, seed: int, directory: Path, *, verbose: bool = False) -> None:
        self.seed = seed
        self.directory = directory
        directory.mkdir(mode=0o700)
        self._streams: dict[str, Random] = {}
        self._context = copy_context()
        slow = self.stream("threads")
        self.loop = SimulatedLoop(lambda: slow.uniform(0.0005, 0.02))
        self.trace = Trace(self.loop.time, str(directory), verbose=verbose)
        self._walls: dict[str, WallClock] = {}
        self._pids = 1000
        self.violations: list[str] = []
        self.network = Network(self.loop, self.trace, self.stream("network"))
        setup = self.stream("setup")
        self.nodes = [f"n{number}" for number in range(1, setup.randint(5, 12))]
        self.settings = Settings(
            boot_limit_s=15.0,
            ready_limit_s=20.0,
            stop_limit_s=10.0,
            aside_s=60.0,
            rest_s=20.0,
            leaving_limit_s=10.0,
            hold_s=setup.choice([0.5, 10.0]),
            recent_jobs=4,
            keep_jobs_s=600.0,
            journal_events=2000,
            max_jobs=setup.choice([None, None, 3]),
            profiler=setup.choice(["oracle", "gp"]),
            empty_limit_s=20.0,
            orphan_limit_s=60.0,
        )
        self.checkpoint_age_s = 5.0
        self.ledgers: dict[str, JobLedger] = {}
        self.groups: dict[tuple[str, int], GroupState] = {}
        self.agents: dict[str, SimulatedAgent] = {}
        self.solver_trouble = ""
        self.store_address = "10.0.0.9:7001"
        self.never_ready_nodes: set[str] = set()
        self.failing_nodes: set[str] = set()
        self.full_disk_until_s = 0.0
        self.invariants = Invariants(self)
        self.queue = LocalQueue(self, self.nodes)
        self._controllers = 0
        self.run: ControllerRun | None = None

    # -- randomness and names -----------------------------------------------------------------------------------------

    def stream(self, name: str) -> Random:
        """Return the random numbers of this name."""
        found = self._streams.get(name)
        if found is None:
            found = self._streams[name] = Random(f"{self.seed} {name}")
        return found

    def draw(self, name: str, low: float, high: float) -> float:
        return self.stream(name).uniform(low, high)

    def later(self, after_s: float, call: Callable[..., object], *arguments: object) -> None:
        """Let the world around the processes do something after a while."""
        self.loop.call_later(after_s, call, *arguments, context=self._context.copy())

    def next_pid(self) -> int:
        self._pids += 1
        return self._pids

    def wall_of(self, computer: str) -> WallClock:
        """Return the wall clock of a computer."""
        if computer not in self._walls:
            self._walls[computer] = WallClock(self.loop, _START_S)
        return self._walls[computer]

    # -- what the parts ask -------------------------------------------------------------------------------------------

    def ledger(self, job: str) -> JobLedger:
        found = self.ledgers.get(job)
        if found is None:
            random = self.stream(f"job {job}")
            found = self.ledgers[job] = JobLedger(
                job, batch=8, goal_steps=random.choice([20, 60, 200, 1000]), step_s=random.choice([0.1, 0.3, 1.0])
            )
        return found

    def start_fails(self, node: str) -> bool:
        return node in self.failing_nodes

    def never_ready(self, node: str) -> bool:
        return node in self.never_ready_nodes

    def disk_trouble(self) -> str:
        return "nothing can be written: No space left on device" if self.loop.time() < self.full_disk_until_s else ""

    def group_state(self, generation: Generation) -> GroupState:
        """Return what the members of a generation have sent each other."""
        key = generation.job, generation.generation
        found = self.groups.get(key)
        if found is None:
            random = self.stream(f"group {generation.job} {generation.generation}")
            found = self.groups[key] = GroupState(self.loop, self.trace, random, generation)
            for old in [each for each in self.groups if each[0] == key[0]][:-20]:
                del self.groups[old]
        elif found.generation.workers != generation.workers:
            self.violation(f"Job {key[0]}: generation {key[1]} was given to two sets of members.")
        return found

    def start_agent(self, node: str, pilot: str) -> SimulatedAgent:
        agent = SimulatedAgent(self, node, pilot)
        if node in self.agents:
            self.violation(f"Two agents run on {node} at once.")
        self.agents[node] = agent
        return agent

    # -- what the parts tell ------------------------------------------------------------------------------------------

    def agent_ended(self, agent: SimulatedAgent) -> None:
        self.trace.note("agent", f"{agent.pilot} has ended")
        if self.agents.get(agent.node) is agent:
            del self.agents[agent.node]

    def training_begins(self, ledger: JobLedger, worker: str, state: TrainingStep | None) -> None:
        self.invariants.check_restore(ledger, worker, state)
        lost = ledger.go_back(state)
        if lost:
            self.trace.note("training", f"{ledger.job} does {lost} steps again")

    def script_ended(self, job: str, worker: str, code: int) -> None:
        if code == 0:
            self.trace.note("training", f"script of {job} ended on {worker}")

    def controller_begins(self, controller: Controller) -> None:
        self.invariants.controller_begins(controller)

    def controller_answered(self, controller: Controller) -> None:
        self.trace.event("controller", f"event {controller.state.event_id}")
        self.invariants.check_controller(controller)

    def controller_ended(self, run: ControllerRun) -> None:
        self.trace.note("controller", "has ended")
        if run.controller is not None:
            self.invariants.controller_ended(run.controller)
        if self.run is run:
            self.run = None
            self.network.listener = None
            self.later(self.draw("supervisor", 0.5, 4.0), self.start_controller)

    def start_controller(self) -> None:
        """Start the controller, unless it runs."""
        if self.run is None:
            self._controllers += 1
            self.run = ControllerRun(self, self._controllers)

    def want(self, nodes: list[str]) -> None:
        """Let the queue want these nodes."""
        for node in nodes:
            if node in self.agents:
                for worker in self.agents[node].workers.values():
                    if self.agents[node].was_frozen:
                        self.excuse(worker.job)
        self.queue.change(wanted=nodes)

    def excuse(self, job: str) -> None:
        """Note that the job may lose what a worker of it has, without a warning."""
        ledger = self.ledger(job)
        newest = max([generation for owner, generation in self.groups if owner == job], default=0)
        ledger.excused = max(newest, ledger.excused or 0)

    def replace_store(self) -> None:
        """Let the rendezvous store die, and another start."""
        self.store_address = f"10.0.0.9:{self.next_pid()}"

    def violation(self, text: str) -> None:
        """Note that an invariant does not hold: the run ends here."""
        self.violations.append(text)
        self.trace.note("VIOLATION", text)

    @property
    def controller(self) -> Controller | None:
        """The running controller, once it is ready."""
        return self.run.controller if self.run is not None and self.run.ready else None
