"""Carries actions out: what the queue and the users do, and faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from offcut.control.state import ENDED, LIVE
from offcut.errors import OffcutError
from offcut.model import Job, Sizes
from offcut.model import events as ev
from offcut.testing.campaign.actions import FAULTS, Action
from offcut.testing.campaign.nodes import SimulatedAgent, SimulatedWorker
from offcut.testing.campaign.simulated_loop import Process
from offcut.testing.campaign.slurm_queue import SlurmQueue
from offcut.testing.campaign.world import World

_Item = TypeVar("_Item")
#: At most this many jobs live at once.
_MOST_JOBS = 6
_SIZES = ("1:8", "1:4", "1,2,4", "2:6", "1", "3:12")


class Injector:
    """Does to the world what actions say. An action whose target is not there does nothing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._jobs = 0
        #: When all that is wrong at the moment has to end.
        self.calm_s = 0.0
        self._do: dict[str, Callable[[Action], bool]] = {
            "offer": self._offer,
            "want": self._want,
            "want together": self._want_together,
            "submit": self._submit,
            "cancel": lambda it: self._about_job(it, ev.JobCancelled, *LIVE, "finishing", "paused"),
            "pause": lambda it: self._about_job(it, ev.JobPaused, *LIVE),
            "resume": lambda it: self._about_job(it, ev.JobResumed, "paused"),
            "change": self._change,
            "release": self._release,
            "release all": lambda it: self._ask(ev.ReleaseAsked(time_s=self._now_s())),
            "claim again": lambda it: self._ask(ev.ClaimingResumed(time_s=self._now_s())),
            "forgive": lambda it: self._ask(ev.NodesForgiven(time_s=self._now_s())),
            "forget": self._forget,
            "kill worker": self._kill_worker,
            "freeze worker": self._freeze_worker,
            "kill agent": self._kill_agent,
            "freeze agent": self._freeze_agent,
            "lose node": self._lose_node,
            "cut": lambda it: self._cut(it, known=True),
            "cut unnoticed": lambda it: self._cut(it, known=False),
            "partition node": self._partition_node,
            "partition all": self._partition_all,
            "kill controller": self._kill_controller,
            "lose power": self._lose_power,
            "freeze controller": self._freeze_controller,
            "set clock": self._set_clock,
            "solver": self._trouble_solver,
            "slurm": self._trouble_slurm,
            "kill store": self._kill_store,
            "never ready": lambda it: self._spoil(it, self._world.never_ready_nodes),
            "start fails": lambda it: self._spoil(it, self._world.failing_nodes),
            "disk full": self._fill_disk,
            "want at worst": self._want_at_worst,
        }

    def apply(self, action: Action) -> None:
        """Carry the action out."""
        if self._do[action.kind](action) and action.kind in FAULTS:
            self._world.trace.fault(action.kind, str(action))

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _now_s(self) -> float:
        """Return the controller's time."""
        run, controller = self._world.run, self._world.controller
        return run.process.context.run(controller.clock.now) if run is not None and controller is not None else 0.0

    def _for_s(self, action: Action, longest_s: float) -> float:
        """Return how long it lasts: mostly short, and not into the calm."""
        left_s = max(0.1, self.calm_s - self._world.loop.time())
        return min(left_s, longest_s * action.amount**2 + 0.05)

    def _later(self, after_s: float, call: Callable[[], object]) -> None:
        self._world.later(after_s, call)

    def _workers(self) -> list[SimulatedWorker]:
        return [worker for agent in self._world.agents.values() for worker in agent.workers.values()]

    def _agents(self) -> list[SimulatedAgent]:
        return list(self._world.agents.values())

    def _excuse(self, agent: SimulatedAgent) -> None:
        """Note that jobs may lose what their workers on this node have."""
        for worker in agent.workers.values():
            self._world.excuse(worker.job)

    def _ask(self, event: ev.Event) -> bool:
        """Let a user ask for something, through the owner's API."""
        run = self._world.run
        if run is None or not run.ready or run.controller is None or run.process.frozen:
            return False
        controller = run.controller

        def ask() -> None:
            try:
                controller.ask(event)
            except OffcutError as error:
                self._world.trace.note("user", f"is refused: {error}")

        self._world.trace.event("user", f"{event}")
        run.process.call(ask)
        return True

    # -- the queue ----------------------------------------------------------------------------------------------------

    def _offer(self, action: Action) -> bool:
        nodes = self._some(self._world.nodes, action)
        self._world.queue.change(idle=nodes)
        return True

    def _want(self, action: Action) -> bool:
        self._world.want([_pick(self._world.nodes, action)])
        return True

    def _want_together(self, action: Action) -> bool:
        self._world.want(self._some(self._world.nodes, action))
        return True

    def _some(self, nodes: Sequence[str], action: Action) -> list[str]:
        """Return some nodes that lie side by side."""
        first, count = action.pick % len(nodes), 1 + int(action.amount * len(nodes))
        return [nodes[(first + i) % len(nodes)] for i in range(min(count, len(nodes)))]

    def _want_at_worst(self, action: Action) -> bool:
        """Let the queue want a node that is just changing: its worker starts, saves, joins or leaves."""
        controller = self._world.controller
        if controller is None:
            return False
        state = controller.state
        forming = {member.node for job in state.jobs.values() for members in job.forming.values() for member in members}
        changing = [
            name
            for name, node in state.nodes.items()
            if node.phase == "claimed" or node.worker in ("starting", "ready", "leaving") or name in forming
        ]
        if not changing:
            return False
        self._world.want([_pick(changing, action)])
        return True

    # -- users --------------------------------------------------------------------------------------------------------

    def _submit(self, action: Action) -> bool:
        controller = self._world.controller
        if controller is None:
            return False
        live = [job for job in controller.state.jobs.values() if job.phase not in ENDED]
        if len(live) >= _MOST_JOBS:
            return False
        self._jobs += 1
        job_id = f"j{self._jobs}"
        job = Job(
            id=job_id,
            name=job_id,
            command=("train.py",),
            sizes=Sizes.parse(_pick(_SIZES, action)),
            weight=1.0 + action.amount,
            priority=int(action.amount * 10) % 7 == 0,
            max_failures=3,
            checkpoint_age_s=self._world.checkpoint_age_s,
            finish_limit_s=30.0,
            hang_limit_s=60.0,
        )
        return self._ask(ev.JobSubmitted(time_s=self._now_s(), job=job))

    def _job(self, action: Action, *phases: str) -> str | None:
        controller = self._world.controller
        if controller is None:
            return None
        found = [job_id for job_id, job in controller.state.jobs.items() if job.phase in phases]
        return _pick(found, action) if found else None

    def _about_job(self, action: Action, kind: Callable[..., ev.Event], *phases: str) -> bool:
        job = self._job(action, *phases)
        return job is not None and self._ask(kind(time_s=self._now_s(), job=job))

    def _change(self, action: Action) -> bool:
        job = self._job(action, *LIVE)
        if job is None:
            return False
        sizes = Sizes.parse(_SIZES[int(action.amount * len(_SIZES))])
        return self._ask(ev.JobChanged(time_s=self._now_s(), job=job, sizes=sizes))

    def _release(self, action: Action) -> bool:
        return self._ask(ev.ReleaseAsked(time_s=self._now_s(), nodes=(_pick(self._world.nodes, action),)))

    def _forget(self, action: Action) -> bool:
        job = self._job(action, *ENDED)
        return job is not None and self._ask(ev.JobsForgotten(time_s=self._now_s(), jobs=(job,)))

    # -- faults -------------------------------------------------------------------------------------------------------

    def _kill_worker(self, action: Action) -> bool:
        workers = self._workers()
        if not workers:
            return False
        worker = _pick(workers, action)
        self._world.excuse(worker.job)
        worker.end(1 if action.amount < 0.3 else -9)
        return True

    def _freeze_worker(self, action: Action) -> bool:
        workers = self._workers()
        if not workers:
            return False
        worker = _pick(workers, action)
        self._world.excuse(worker.job)
        self._freeze(worker.process, self._for_s(action, 12.0))
        return True

    def _freeze(self, process: Process, for_s: float) -> None:
        process.freeze()
        self._later(for_s, process.revive)

    def _kill_agent(self, action: Action) -> bool:
        agents = self._agents()
        if not agents:
            return False
        agent = _pick(agents, action)
        self._excuse(agent)
        agent.kill()
        return True

    def _freeze_agent(self, action: Action) -> bool:
        """Stop an agent, and perhaps its workers: the whole node."""
        agents = self._agents()
        if not agents:
            return False
        agent = _pick(agents, action)
        self._excuse(agent)
        agent.was_frozen = True
        for_s = self._for_s(action, 15.0)
        self._freeze(agent.process, for_s)
        if action.pick % 2:
            for worker in agent.workers.values():
                self._freeze(worker.process, for_s)
        return True

    def _lose_node(self, action: Action) -> bool:
        """Let a node lose its power: its connections are not closed, nothing answers."""
        agents = self._agents()
        if not agents:
            return False
        agent = _pick(agents, action)
        self._excuse(agent)
        for connection in list(self._world.network.connections.values()):
            if connection.node == agent.node:
                self._world.network.cut(connection, known=False)
        agent.kill()
        return True

    def _cut(self, action: Action, *, known: bool) -> bool:
        connections = list(self._world.network.connections.values())
        if not connections:
            return False
        connection = _pick(connections, action)
        agent = self._world.agents.get(connection.node)
        if agent is not None:
            self._excuse(agent)
        self._world.network.cut(connection, known=known)
        return True

    def _partition_node(self, action: Action) -> bool:
        node = _pick(self._world.nodes, action)
        agent = self._world.agents.get(node)
        if agent is not None:
            self._excuse(agent)
        self._world.network.partitioned_until_s[node] = self._world.loop.time() + self._for_s(action, 15.0)
        return agent is not None

    def _partition_all(self, action: Action) -> bool:
        for agent in self._agents():
            self._excuse(agent)
        self._world.network.partitioned_until_s[""] = self._world.loop.time() + self._for_s(action, 12.0)
        return True

    def _kill_controller(self, action: Action) -> bool:
        run = self._world.run
        if run is None:
            return False
        for agent in self._agents():
            self._excuse(agent)
        run.process.end()
        return True

    def _lose_power(self, action: Action) -> bool:
        """Let the power of the controller's computer fail: writes that were not synced are lost or torn."""
        if self._world.run is None:
            return False
        self._world.run.power_lost = True
        return self._kill_controller(action)

    def _freeze_controller(self, action: Action) -> bool:
        run = self._world.run
        if run is None:
            return False
        for agent in self._agents():
            self._excuse(agent)
        self._freeze(run.process, self._for_s(action, 12.0))
        return True

    def _set_clock(self, action: Action) -> bool:
        computer = ("controller", "daemon", *self._world.nodes)[action.pick % (2 + len(self._world.nodes))]
        self._world.wall_of(computer).offset_s += 7200.0 * (action.amount - 0.5)
        return True

    def _trouble_solver(self, action: Action) -> bool:
        world = self._world
        world.solver_trouble = ("slow", "dies", "fails")[action.pick % 3]

        def mend() -> None:
            world.solver_trouble = ""

        self._later(self._for_s(action, 30.0), mend)
        return True

    def _trouble_slurm(self, action: Action) -> bool:
        world = self._world
        if not isinstance(world.queue, SlurmQueue):
            return False
        world.slurm_trouble = ("silent", "refuses")[action.pick % 2]

        def mend() -> None:
            world.slurm_trouble = ""

        self._later(self._for_s(action, 20.0), mend)
        return True

    def _kill_store(self, action: Action) -> bool:
        self._world.replace_store()
        return True

    def _spoil(self, action: Action, nodes: set[str]) -> bool:
        node = _pick(self._world.nodes, action)
        nodes.add(node)
        self._later(self._for_s(action, 60.0), lambda: nodes.discard(node))
        return True

    def _fill_disk(self, action: Action) -> bool:
        self._world.full_disk_until_s = self._world.loop.time() + self._for_s(action, 20.0)
        return True


def _pick(items: Sequence[_Item], action: Action) -> _Item:
    return items[action.pick % len(items)]
