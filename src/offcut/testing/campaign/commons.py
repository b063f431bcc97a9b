"""What all parts of a simulated world share: the clock, the network, random numbers, jobs, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from random import Random
from typing import Any

from offcut.control import Settings
from offcut.membership.generation import Generation
from offcut.testing.campaign.collectives import GroupState
from offcut.testing.campaign.ledger import JobLedger, TrainingStep
from offcut.testing.campaign.network import Network
from offcut.testing.campaign.simulated_loop import SimulatedLoop, WallClock
from offcut.testing.campaign.trace import Trace

#: The wall clock at the beginning: 2026-01-01.
_START_S = 1_767_225_600.0


def _nothing(*_: Any) -> None: ...


class Commons:
    """`directory` is the controller's state directory, empty at first.

    Random numbers come in streams that are named after what they decide, so that leaving a fault out changes little.
    """

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
            journal_events=400,
            max_jobs=setup.choice([None, None, 3]),
            profiler=setup.choice(["oracle", "gp"]),
            empty_limit_s=20.0,
            orphan_limit_s=60.0,
        )
        self.checkpoint_age_s = 5.0
        self.ledgers: dict[str, JobLedger] = {}
        self.groups: dict[tuple[str, int], GroupState] = {}
        self.solver_trouble = ""
        #: What is wrong with Slurm: empty, `silent` or `refuses`.
        self.slurm_trouble = ""
        self.store_address = "10.0.0.9:7001"
        self.never_ready_nodes: set[str] = set()
        self.failing_nodes: set[str] = set()
        self.full_disk_until_s = 0.0
        #: Called with an agent whose node is wanted, that started a worker, or that has ended.
        self.on_wanted: Callable[[Any], None] = _nothing
        self.on_worker_started: Callable[[Any], None] = _nothing
        self.on_agent_ended: Callable[[Any], None] = _nothing
        #: Called when members begin with a checkpoint: with the job, the worker and the state.
        self.on_training_begun: Callable[[JobLedger, str, TrainingStep | None], None] = _nothing

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
