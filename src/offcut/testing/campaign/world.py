"""The simulated world of one seed: a controller, a batch system, agents, workers, a network, and their troubles."""

from __future__ import annotations

from pathlib import Path

from offcut.service.controller import Controller
from offcut.testing.campaign.commons import Commons
from offcut.testing.campaign.controller_run import ControllerRun
from offcut.testing.campaign.invariants import Invariants
from offcut.testing.campaign.ledger import JobLedger, TrainingStep
from offcut.testing.campaign.local_queue import LocalQueue
from offcut.testing.campaign.nodes import SimulatedAgent
from offcut.testing.campaign.slurm_queue import SlurmQueue


class World(Commons):
    """`directory` is the controller's state directory, which is made."""

    def __init__(self, seed: int, directory: Path, *, verbose: bool = False) -> None:
        super().__init__(seed, directory, verbose=verbose)
        self.agents: dict[str, SimulatedAgent] = {}
        self.invariants = Invariants(self, self.agents, lambda: self.controller)
        #: Every third seed has Slurm.
        queue = SlurmQueue if seed % 3 == 0 else LocalQueue
        self.queue: LocalQueue | SlurmQueue = queue(self, self.nodes, self.start_agent)
        self.on_wanted = self.invariants.node_wanted
        self.on_worker_started = self.invariants.check_node
        self.on_agent_ended = self.agent_ended
        self.on_training_begun = self.training_begins
        self._controllers = 0
        self.run: ControllerRun | None = None

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

    def controller_begins(self, controller: Controller) -> None:
        self.invariants.controller_begins(controller)

    def controller_answered(self, controller: Controller) -> None:
        self.trace.event("controller", f"event {controller.state.event_id}")
        self.invariants.check_controller(controller)

    def controller_ended(self, run: ControllerRun) -> None:
        self.trace.note("controller", "has ended")
        if run.controller is not None:
            self.invariants.controller_ended(run.controller, power_lost=run.power_lost)
        if self.run is run:
            self.run = None
            self.network.listener = None
            self.later(self.draw("supervisor", 0.5, 4.0), self.start_controller)

    def start_controller(self) -> None:
        """Start the controller, unless it runs."""
        if self.run is None:
            self._controllers += 1
            self.run = ControllerRun(self, self._controllers, self.queue, self)

    def want(self, nodes: list[str]) -> None:
        """Let the queue want these nodes."""
        for node in nodes:
            if node in self.agents:
                for worker in self.agents[node].workers.values():
                    if self.agents[node].was_frozen:
                        self.excuse(worker.job)
        self.queue.change(wanted=nodes)

    @property
    def controller(self) -> Controller | None:
        """The running controller, once it is ready."""
        return self.run.controller if self.run is not None and self.run.ready else None
