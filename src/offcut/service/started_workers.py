"""Remembers which workers each agent was told to run. An agent's reports about other workers are ignored."""

from __future__ import annotations

from collections.abc import Iterable

from offcut.control import State, report_checks
from offcut.model.events import Member
from offcut.wire import messages


class StartedWorkers:
    """Remembers which workers were started on which node.

    Kept from one connection of an agent to the next, but not over a restart of the controller: then the state says
    which worker runs where.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        #: By node: the pilot, and job and incarnation of its workers.
        self._by_node: dict[str, tuple[str, set[tuple[str, int]]]] = {}
        #: Nodes that were claimed since this controller began.
        self._claimed: set[str] = set()

    def note_claimed(self, nodes: Iterable[str]) -> None:
        self._claimed.update(nodes)

    def accept_hello(self, hello: messages.Hello) -> messages.Hello:
        """Return an agent's hello with only those workers that it was told to run.

        An agent can have heard of newer numbers than the journal has only if it ran before this controller began.
        """
        pilot, before = self._by_node.get(hello.node, ("", set()))
        was_here = hello.node not in self._claimed and pilot != hello.pilot
        told = before if pilot == hello.pilot else set()
        said = {(worker.job, worker.incarnation) for worker in hello.workers}
        decided = {(job, n) for job, n in said if report_checks.runs(self._state, job, Member(hello.node, n))}
        self._by_node[hello.node] = hello.pilot, (said & told) | decided
        return hello if was_here else self._without_news(hello)

    def _without_news(self, hello: messages.Hello) -> messages.Hello:
        newest = self._state.incarnations
        known = [worker for worker in hello.workers if worker.incarnation <= newest]
        workers = tuple(worker.model_copy(update={"generation": 0}) for worker in known)
        return hello.model_copy(update={"incarnation": 0, "workers": workers})

    def note_adopted(self, hello: messages.Hello) -> None:
        """Note the workers that the state has taken over since, of those that the agent says it runs."""
        for worker in hello.workers:
            if report_checks.runs(self._state, worker.job, Member(hello.node, worker.incarnation)):
                self._by_node[hello.node][1].add((worker.job, worker.incarnation))

    def note_started(self, job: str, member: Member) -> None:
        """Note that the agent of the member's node is told to start this worker."""
        if member.node in self._by_node:
            self._by_node[member.node][1].add((job, member.incarnation))

    def note_ended(self, job: str, member: Member) -> None:
        """Note that the worker's end has been reported."""
        if member.node in self._by_node:
            self._by_node[member.node][1].discard((job, member.incarnation))

    def runs(self, node: str, job: str, incarnation: int) -> bool:
        """Return whether the node's agent was told to start this worker, and has not reported its end."""
        return (job, incarnation) in self._by_node.get(node, ("", set()))[1]

    def is_credible(self, node: str, message: messages.FromAgent) -> bool:
        """Return whether the node's agent can know what it reports."""
        started = self._by_node.get(node, ("", set()))[1]
        match message:
            case messages.Ready() | messages.Exited():
                return (message.job, message.incarnation) in started
            case messages.Broken() | messages.Pace():
                member = Member(node, message.incarnation)
                job = self._state.jobs.get(message.job)
                return (message.job, message.incarnation) in started and (
                    report_checks.speaks_for(self._state, message.job, message.generation, member)
                    # A generation that broke may have been replaced already, while members still wait in it.
                    or (
                        isinstance(message, messages.Broken) and job is not None and message.generation < job.generation
                    )
                )
            case messages.Formed() | messages.Trained() | messages.Progress():
                return any(
                    report_checks.speaks_for(self._state, message.job, message.generation, Member(node, incarnation))
                    for job, incarnation in started
                    if job == message.job
                )
            case messages.Note():
                return any(job == message.job for job, _ in started)
            case messages.NodeWanted():
                return bool(started)
            case messages.Hello() | messages.Heartbeat():
                return False
