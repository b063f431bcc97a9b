"""A world for the controller: no threads, no processes, a clock of its own; equal calls have equal results.

It carries the effects out as the live system would: claimed nodes boot, workers become ready, generations form, workers
that were told to leave exit, timers fire, problems are solved. What it is told (`never_boots`, `offer`, `want`, `kill`)
is what goes on outside of the controller. Everything that the controller does is checked by `invariants`.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from invariants import Watch
from transitions import recorded

from offcut.allocate.exact import solve
from offcut.control import Settings, State, step
from offcut.control.state import ENDED
from offcut.errors import AllocationError
from offcut.model import Allocation, Job, Sizes
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.ended_job import EndedJob
from offcut.model.events import Member

E = TypeVar("E")


def job(job_id: str, sizes: str = "1:8", **fields: Any) -> Job:
    return Job(id=job_id, name=job_id, command=("train.py",), sizes=Sizes.parse(sizes), **fields)


@dataclass
class Process:
    """A job's workers on one node, as they are in the world."""

    job: str
    member: Member
    #: The newest generation with this member that formed; 0: none yet.
    generation: int = 0
    leaving: bool = False
    #: Mode `restart`: a generation has launched the script here.
    launched: bool = False


@dataclass
class Training:
    """The progress of a job's members."""

    generation: int = 0
    members: tuple[Member, ...] = ()
    step: int = 0


@dataclass(order=True)
class Due:
    at_s: float
    number: int
    happens: Any = field(compare=False)


class World:
    """`state` is the controller's, `log` every (event, effects), `effects` all effects so far."""

    def __init__(self, settings: Settings | None = None, *, solve_s: float = 0.001) -> None:
        self.state = State(settings=settings or Settings())
        self.now_s = 0.0
        self.boot_s, self.ready_s, self.form_s, self.leave_s, self.solve_s = 1.0, 2.0, 0.2, 0.1, solve_s
        self.never_boots: set[str] = set()
        self.refused: set[str] = set()
        self.never_ready: set[str] = set()
        #: Generations of these jobs do not form.
        self.never_forms: set[str] = set()
        #: What a job's script is said to train.
        self.fingerprints: dict[str, str] = {}
        #: The state of jobs is not copied: the disk is full.
        self.copies_fail = False
        #: Problems are kept for the test to answer.
        self.solver_waits = False
        self.questions: list[ef.Solve] = []
        #: Nodes that the queue has idle; those that an agent was sent to, with the number of the claim.
        self.idle: set[str] = set()
        self.pilots: dict[str, int] = {}
        self.processes: dict[Member, Process] = {}
        self.trainings: dict[str, Training] = {}
        #: Jobs that have ended and left the controller's state.
        self.history: dict[str, EndedJob] = {}
        self.log: list[tuple[ev.Event, list[ef.Effect]]] = []
        self._due: list[Due] = []
        self._numbers = itertools.count()
        self._watch = Watch()
        #: The controller is told what is not so: no wonder if it believes it.
        self.misled = False

    # -- the controller ---------------------------------------------------------------------------------------------

    def send(self, event: ev.Event) -> list[ef.Effect]:
        """Let the controller answer the event, and carry its effects out."""
        before = self._watch.before(self.state)
        with recorded(self.state):
            effects = step(self.state, event)
        self._watch.after(before, self.state, event, effects)
        self.log.append((event, effects))
        for effect in effects:
            self._carry_out(effect)
        return effects

    def forget(self, state: State) -> None:
        """Replace the controller by one whose journal ends with `state`; the world stays as it is."""
        self.state = state
        self._watch.forget()

    def _carry_out(self, effect: ef.Effect) -> None:
        match effect:
            case ef.Claim():
                self._claim(effect.nodes)
            case ef.Release():
                self._release_nodes(effect.nodes)
            case ef.StartWorkers():
                for member in effect.members:
                    if member.node not in self.pilots:
                        continue  # no agent hears it
                    self.processes[member] = Process(effect.job, member)
                    self._in(self.ready_s, lambda job=effect.job, member=member: self._ready(job, member))
            case ef.StopWorkers():
                for member in effect.members:
                    self.leave(member, min(self.leave_s, effect.limit_s))
            case ef.SetGeneration():
                training = self.trainings.setdefault(effect.job, Training())
                training.generation, training.members = effect.generation, effect.members
                for member in set(effect.previous) - set(effect.members):
                    self.leave(member)
                if self.state.jobs[effect.job].restarts:
                    self._launch(effect)
                self._in(self.form_s, lambda job=effect.job, generation=effect.generation: self._form(job, generation))
            case ef.Solve():
                self.questions.append(effect)
                if not self.solver_waits:
                    self._in(self.solve_s, lambda: self.answer(effect))
            case ef.ArchiveJob():
                self.history[effect.job.job.id] = effect.job
            case ef.ForgetJobs():
                for job_id in effect.jobs:
                    self.history.pop(job_id, None)
            case ef.CopyJobState():
                source = self.state.jobs[effect.sources[0]]
                writes = any(process.job == source.job.id for process in self.processes.values())
                assert source.phase in ENDED or not writes, "nothing changes while it is copied"
                event = ev.JobStateCopied(time_s=self.now_s, job=effect.job, source=effect.sources[0])
                if not self.copies_fail:
                    self._in(0.05, lambda: self.send(replace(event, time_s=self.now_s)))
            case ef.SetTimer():
                self._in(effect.at_s - self.now_s, lambda: self._fire(effect))

    def answer(self, question: ef.Solve) -> list[ef.Effect]:
        """Let the solver answer, perhaps too late."""
        event: ev.Event
        try:
            allocation = solve(question.problem)
            event = ev.Solved(time_s=self.now_s, version=question.version, allocation=allocation)
        except AllocationError as error:
            event = ev.SolveFailed(time_s=self.now_s, version=question.version, reason=str(error))
        return self.send(event)

    def give(self, **counts: int) -> list[ef.Effect]:
        """Answer the newest problem with these counts."""
        allocation = Allocation(nodes=counts)
        return self.send(ev.Solved(time_s=self.now_s, version=self.state.version, allocation=allocation))

    def _fire(self, timer: ef.SetTimer) -> None:
        self.send(ev.TimerFired(time_s=max(self.now_s, timer.at_s), timer=timer.timer))

    # -- nodes ------------------------------------------------------------------------------------------------------

    def offer(self, *nodes: str, until_s: float | None = None) -> list[ef.Effect]:
        self.idle.update(nodes)
        offered = tuple(ev.Offer(node, until_s) for node in nodes)
        return self.send(ev.NodesChanged(time_s=self.now_s, offered=offered))

    def want(self, *nodes: str) -> list[ef.Effect]:
        """Let the queue want nodes. Their agents learn it from the queue, whatever the controller does."""
        self.idle.difference_update(nodes)
        self._release_nodes(nodes)
        return self.send(ev.NodesChanged(time_s=self.now_s, wanted=nodes))

    def lose(self, *nodes: str) -> list[ef.Effect]:
        """Let nodes vanish with everything that runs on them."""
        self.idle.difference_update(nodes)
        for node in nodes:
            self.pilots.pop(node, None)
            for process in self._on(node):
                del self.processes[process.member]
        return self.send(ev.NodesChanged(time_s=self.now_s, lost=nodes))

    def _claim(self, nodes: tuple[str, ...]) -> None:
        refused = tuple(node for node in nodes if node in self.refused)
        if refused:
            self._in(0.05, lambda: self.send(ev.ClaimRefused(time_s=self.now_s, nodes=refused, reason="taken")))
        for node in nodes:
            if node not in self.refused:
                pilot = self.pilots[node] = next(self._numbers)
                self._in(self.boot_s, lambda node=node, pilot=pilot: self._boot(node, pilot))

    def _boot(self, node: str, pilot: int) -> None:
        if self.pilots.get(node) == pilot and node not in self.never_boots:
            self.send(ev.NodesBooted(time_s=self.now_s, nodes=(node,)))

    def _release_nodes(self, nodes: tuple[str, ...]) -> None:
        for node in nodes:
            self.pilots.pop(node, None)
            for process in self._on(node):
                self.leave(process.member)

    def _on(self, node: str) -> list[Process]:
        return [process for process in self.processes.values() if process.member.node == node]

    def restart(self) -> list[ef.Effect]:
        """Start the controller again with its journal, tell it which nodes are held, then offer the idle ones.

        Return the effects of its comparison with the nodes that are held.
        """
        self.send(ev.ControllerStarted(time_s=self.now_s))
        effects = self.send(ev.NodesHeld(time_s=self.now_s, nodes=tuple(sorted(self.pilots))))
        self.offer(*sorted(self.idle - set(self.pilots)))
        return effects

    # -- workers ----------------------------------------------------------------------------------------------------

    def _ready(self, job_id: str, member: Member) -> None:
        process = self.processes.get(member)
        if process and not process.leaving and member.node not in self.never_ready:
            self.send(ev.WorkersReady(time_s=self.now_s, job=job_id, members=(member,)))

    def _form(self, job_id: str, generation: int) -> None:
        training = self.trainings[job_id]
        alive = all(m in self.processes and not self.processes[m].leaving for m in training.members)
        if training.generation == generation and training.members and alive and job_id not in self.never_forms:
            training.step += 1
            for member in training.members:
                self.processes[member].generation = generation
            self.send(
                ev.GenerationFormed(
                    time_s=self.now_s,
                    job=job_id,
                    generation=generation,
                    took_s=self.form_s,
                    step=training.step,
                    fingerprint=self.fingerprints.get(job_id, ""),
                )
            )

    def _launch(self, effect: ef.SetGeneration) -> None:
        running = [p.member for p in self.processes.values() if p.job == effect.job and p.launched]
        assert self.misled or not (effect.members and running), "two launches never run at once"
        for member in effect.members:
            if member in self.processes:
                self.processes[member].launched = True

    def train(self, job_id: str, steps: int) -> None:
        self.trainings[job_id].step += steps

    def trained(self, job_id: str) -> list[ef.Effect]:
        """Report that the first member has passed the last step."""
        first = self.trainings[job_id].members[0]
        return self.send(ev.JobTrained(time_s=self.now_s, job=job_id, generation=self.processes[first].generation))

    def leave(self, member: Member, after_s: float | None = None) -> None:
        """Tell the worker to leave."""
        process = self.processes.get(member)
        if process and not process.leaving:
            process.leaving = True
            self._in(self.leave_s if after_s is None else after_s, lambda: self.exit(member, "left"))

    def exit(
        self, member: Member, outcome: ev.Outcome, detail: str = "", disk: str = "", code: int | None = None
    ) -> list[ef.Effect]:
        """End the worker, and let its agent report it."""
        process = self.processes.pop(member, None)
        if process is None:
            return []
        training = self.trainings.get(process.job, Training())
        return self.send(
            ev.WorkerExited(
                time_s=self.now_s,
                job=process.job,
                member=member,
                outcome=outcome,
                detail=detail,
                disk=disk,
                code=code,
                generation=process.generation,
                stable_step=max(0, training.step - 1) if process.generation else 0,
            )
        )

    # -- time -------------------------------------------------------------------------------------------------------

    def _in(self, after_s: float, happens: Any) -> None:
        heapq.heappush(self._due, Due(self.now_s + max(0.0, after_s), next(self._numbers), happens))

    def run(self, for_s: float = math.inf) -> None:
        """Let everything happen that is due within this time."""
        until_s = self.now_s + for_s
        while self._due and self._due[0].at_s <= until_s:
            self.next()
        if math.isfinite(until_s):
            self.now_s = until_s

    def run_until(self, holds: Callable[[], object], within_s: float = 60.0) -> None:
        """Let things happen, one after another, until this holds."""
        until_s = self.now_s + within_s
        assert not holds(), "it holds already: nothing is waited for"
        while not holds():
            assert self._due, "nothing is due any more"
            assert self._due[0].at_s <= until_s, f"not within {within_s:g} s"
            self.next()

    def until_members(self, job_id: str, nodes: list[str], within_s: float = 60.0) -> None:
        """Let things happen until the job trains on exactly these nodes, in any order of rank."""

        def trains() -> bool:
            job = self.state.jobs[job_id]
            members = {member.node for member in job.members}
            return members == set(nodes) and job.formed_generation == job.generation

        self.run_until(trains, within_s)

    def until_size(self, job_id: str, size: int) -> None:
        """Let things happen until the job trains on this many nodes."""

        def trains() -> bool:
            job = self.state.jobs[job_id]
            return job.size == size and job.formed_generation == job.generation

        self.run_until(trains)

    def until_settled(self) -> None:
        """Let things happen until every job trains on all nodes that it has, and no problem is open."""
        if not self._settled():
            self.run_until(self._settled)

    def _settled(self) -> bool:
        state = self.state
        trains = all(
            node.phase != "claimed" and (node.job is None or node.worker == "member") for node in state.nodes.values()
        )
        formed = all(job.formed_generation == job.generation for job in state.jobs.values() if job.members)
        return trains and formed and state.open_problem is None

    def until_worker(self, node: str, phase: str) -> None:
        """Let things happen until the worker on the node is in this phase."""
        self.run_until(lambda: node in self.state.nodes and self.state.nodes[node].worker == phase)

    def next(self) -> None:
        """Let the next thing happen."""
        if self._due:
            due = heapq.heappop(self._due)
            self.now_s = max(self.now_s, due.at_s)
            due.happens()

    # -- what tests ask ---------------------------------------------------------------------------------------------

    def submit(self, job_id: str, sizes: str = "1:8", **fields: Any) -> list[ef.Effect]:
        return self.send(ev.JobSubmitted(time_s=self.now_s, job=job(job_id, sizes, **fields)))

    def effects(self, kind: type[E]) -> list[E]:
        return [effect for _, effects in self.log for effect in effects if isinstance(effect, kind)]

    def generations(self, job_id: str) -> list[ef.SetGeneration]:
        return [effect for effect in self.effects(ef.SetGeneration) if effect.job == job_id]

    def members(self, job_id: str) -> list[str]:
        """Return the nodes of the job's generation, by rank."""
        return [member.node for member in self.state.jobs[job_id].members]

    def member(self, job_id: str, node: str) -> Member:
        return next(member for member in self.state.jobs[job_id].members if member.node == node)

    def story(self, subject: str) -> list[str]:
        return [tell.text for tell in self.effects(ef.WriteLog) if tell.subject == subject]


def only(effects: list[ef.Effect], kind: type[E]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]
