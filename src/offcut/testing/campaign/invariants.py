"""What must hold after every event of a simulated run: in the controller's state, and as seen from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from offcut.control import State
from offcut.control.check_state import check_state
from offcut.control.state import ENDED
from offcut.model import effects as ef
from offcut.service.controller import Controller
from offcut.testing.campaign.commons import Commons
from offcut.testing.campaign.ledger import JobLedger, TrainingStep
from offcut.testing.campaign.nodes import SimulatedAgent

#: Nothing runs on a node for longer than this after it was wanted; the rest is for rounding.
_RELEASE_S = 1.0 + 1e-6


class Invariants:
    """Checks one world. What does not hold is reported to it.

    Args:
        world: what its parts share.
        agents: the agents that run, by node.
        controller: returns the controller that runs; None while there is none.
    """

    def __init__(
        self, world: Commons, agents: Mapping[str, SimulatedAgent], controller: Callable[[], Controller | None]
    ) -> None:
        self._world = world
        self._agents = agents
        self._controller = controller
        #: Never given twice, whatever happens to the controller.
        self._incarnations: set[int] = set()
        self._generations: dict[str, int] = {}
        #: The state of the controller that ended, and the number of its last event.
        self._left: State | None = None
        self._last_effect = (0, -1)
        #: The last event whose effects may not be forgotten; and that of a controller whose power failed.
        self._promised = 0
        self._synced_event: int | None = None
        #: By job: how far it was, and since when.
        self._progress: dict[str, tuple[object, float]] = {}

    # -- the controller -----------------------------------------------------------------------------------------------

    def controller_begins(self, controller: Controller) -> None:
        """Compare the state that the journal leads to with that of the controller before."""
        left, state = self._left, controller.state
        if left is not None and self._synced_event is not None:
            if not self._synced_event <= state.event_id <= left.event_id:
                self._world.violation(
                    f"After a loss of power the journal ends with event {state.event_id}: it was synced after event "
                    f"{self._synced_event}, and the last was {left.event_id}."
                )
        elif left is not None and left != state:
            self._world.violation(f"The restarted controller has another state: {_difference(left, state)}.")
        self._last_effect = (state.event_id, -1)
        self._synced_event = None
        self._promised = state.event_id
        carry_out = controller._effects.carry_out
        release = controller._effects.release

        def checked(effect: ef.Effect) -> None:
            self._check_effect(controller.state, effect)
            carry_out(effect)

        def noted(nodes: tuple[str, ...]) -> None:
            self._world.trace.note("effect", f"release {nodes}")
            release(nodes)

        controller._effects.carry_out = checked  # type: ignore[method-assign]
        controller._effects.release = noted  # type: ignore[method-assign]

    def controller_ended(self, controller: Controller, *, power_lost: bool) -> None:
        """Note what the next controller must know: all, or after a loss of power what was synced."""
        self._left = controller.state
        self._synced_event = self._promised if power_lost else None

    def check_controller(self, controller: Controller) -> None:
        """Check the state after an event."""
        for wrong in check_state(controller.state):
            self._world.violation(f"After event {controller.state.event_id}: {wrong}")
        if controller.state.skipped:
            last = controller.state.skipped[-1]
            if last.event_id == controller.state.event_id:
                self._world.violation(f"Event {last.event_id} ({last.kind}) could not be answered: {last.reason}.")

    def _check_effect(self, state: State, effect: ef.Effect) -> None:
        world = self._world
        world.trace.note("effect", f"Solve {effect.version}" if isinstance(effect, ef.Solve) else f"{effect}")
        if effect.cause != state.event_id:
            world.violation(f"An effect of event {effect.cause} came after event {state.event_id}: {effect}.")
        if (effect.cause, effect.index) <= self._last_effect:
            world.violation(f"An effect was carried out twice, or out of order: {effect}.")
        self._last_effect = effect.cause, effect.index
        if isinstance(effect, ef.StartWorkers | ef.SetGeneration):
            self._promised = effect.cause
        match effect:
            case ef.StartWorkers():
                for member in effect.members:
                    if member.incarnation in self._incarnations:
                        world.violation(f"Incarnation {member.incarnation} was given twice: {effect}.")
                    self._incarnations.add(member.incarnation)
            case ef.SetGeneration():
                if effect.generation <= self._generations.get(effect.job, 0):
                    world.violation(f"Generation {effect.generation} of {effect.job} was given twice.")
                self._generations[effect.job] = effect.generation
                sizes = state.jobs[effect.job].job.sizes
                if effect.members and len(effect.members) not in sizes:
                    world.violation(f"{effect.job} has a generation of {len(effect.members)}, which is not allowed.")
            case ef.Claim():
                if not state.may_claim:
                    world.violation(f"Nodes are claimed although none may be: {effect}.")

    # -- nodes --------------------------------------------------------------------------------------------------------

    def node_wanted(self, agent: SimulatedAgent) -> None:
        """Note that the queue wants an agent's node: within a second nothing may run there."""
        self._world.loop.call_later(_RELEASE_S, self._check_released, agent)

    def _check_released(self, agent: SimulatedAgent) -> None:
        # A frozen agent obeys nothing; the batch system kills it when its grace is over.
        if agent.process.alive and not agent.was_frozen:
            self._world.violation(f"The agent on {agent.node} still runs 1 s after the node was wanted.")

    def check_node(self, agent: SimulatedAgent) -> None:
        """Check that the workers on a node are of one start of one job."""
        of = {(worker.job, worker.name.rpartition(":")[0]) for worker in agent.workers.values()}
        if len(of) > 1:
            self._world.violation(f"Workers of two starts run on {agent.node} at once: {sorted(of)}.")

    # -- training -----------------------------------------------------------------------------------------------------

    def check_restore(self, ledger: JobLedger, worker: str, state: TrainingStep | None) -> None:
        """Check that the members had to begin with a checkpoint: nobody that the controller counts on has more."""
        world = self._world
        number = 0 if state is None else state.number
        controller = self._controller()
        for agent in self._agents.values():
            for other in agent.workers.values():
                member = other.member
                if other.job != ledger.job or member is None or not member.has_state or member.step <= number:
                    continue
                if controller is None or other.process.frozen or agent.process.frozen or member.link.leaving:
                    continue
                node = controller.state.nodes.get(agent.node)
                if node is None or node.job != ledger.job or node.worker not in ("member", "ready"):
                    continue
                if other.name != worker and other.name.startswith(f"{node.name}#{node.incarnation}:"):
                    world.violation(
                        f"{ledger.job} goes on from step {number} on {worker}, but {other.name} has step {member.step}."
                    )
        if len(ledger.stable) > number and ledger.excused is None:
            world.violation(
                f"{ledger.job} goes on from step {number} of {len(ledger.stable)}, and no member died without warning."
            )

    def begin_calm(self) -> None:
        """Note how far every job is: from now on nothing disturbs them."""
        now_s = self._world.loop.time()
        controller = self._controller()
        self._progress = {}
        for job_id, job in controller.state.jobs.items() if controller is not None else ():
            self._progress[job_id] = (self._how_far(job_id), now_s) if job.nodes else (None, now_s)

    def _how_far(self, job_id: str) -> object:
        ledger = self._world.ledgers.get(job_id)
        return (len(ledger.stable), ledger.redone) if ledger is not None else None

    def check_progress(self) -> None:
        """Check that every job that has nodes, and was not disturbed for a minute, is further than it was."""
        controller = self._controller()
        if controller is None:
            self._world.violation("There is no controller, though nothing has disturbed it for a minute.")
            return
        for job_id, (before, _) in self._progress.items():
            job = controller.state.jobs.get(job_id)
            if before is None or job is None or job.phase in ENDED or not job.nodes or job.phase == "finishing":
                continue
            if self._how_far(job_id) == before:
                self._world.violation(
                    f"{job_id} has nodes ({', '.join(job.nodes)}), is {job.phase}, and made no progress for a minute."
                )

    def check_growth(self) -> None:
        """Check that nothing grows with the length of the run."""
        world, controller = self._world, self._controller()
        if controller is None:
            return
        state = controller.state
        nodes, jobs = len(world.nodes), len(state.jobs)
        sizes = {
            "timers of the controller": (len(state.timers), 4 * (nodes + jobs) + 8),
            "jobs in the state": (jobs, 60),
            "nodes of which failed starts are kept": (len(state.failed_starts), nodes),
            "stretches of forgotten incarnations": (len(state.forgotten_incarnations), 8),
            "nodes in the state": (len(state.nodes), nodes),
            "timers of the loop": (world.loop.pending_timers(), 5000),
        }
        for agent in self._agents.values():
            if agent.agent is not None:
                sizes[f"reports that wait on {agent.node}"] = (len(agent.agent._controller._waiting), 100)
        for what, (size, most) in sizes.items():
            if size > most:
                world.violation(f"There are {size} {what}, more than {most}.")


def _difference(left: State, right: State) -> str:
    for name in State.__dataclass_fields__:
        a, b = getattr(left, name), getattr(right, name)
        if a != b:
            if isinstance(a, dict) and isinstance(b, dict):
                for key in {**a, **b}:
                    if a.get(key) != b.get(key):
                        return f"{name}[{key}] is {b.get(key)}, was {a.get(key)}"
            return f"{name} is {b}, was {a}"
    return "none that can be named"
