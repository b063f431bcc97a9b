"""A journal that is older than what runs, restored from a copy for example: numbers are not given twice even then.

The numbers are those of generations and incarnations. Workers ignore a generation that is not newer than theirs, so one
whose number was given before would hang the job. If the journal has forgotten the last numbers, others know them: what
the controller noted beside the journal, and the agents, which report the numbers that they have heard. The controller
goes on above these, and sets the membership of jobs that are behind again.
"""

from __future__ import annotations

from offcut.control import membership, relaunch
from offcut.control.event_context import EventContext
from offcut.control.state import ENDED, LIVE, JobState, NodeState
from offcut.model import events as ev
from offcut.model.events import Member, Timer

#: One agent need not have heard the newest numbers: the next ones begin this far above those that it reports.
_APART = 1000
#: No journal is this many generations or incarnations behind: a report that says so is not believed.
_MOST = 1_000_000
#: How many stretches of forgotten incarnations are remembered.
_STRETCHES = 8


def note_reported(context: EventContext, event: ev.AgentReported) -> None:
    """Go on above the numbers that an agent has heard, if they are newer than those of the journal.

    Then every number of the journal is an old one, also those of jobs that this agent knows nothing of.
    """
    state = context.state
    said = max([event.incarnation, *(worker.incarnation for worker in event.workers)])
    incarnation = _believed(said, state.incarnations)
    generations = {
        worker.job: _believed(worker.generation, state.jobs[worker.job].generation)
        for worker in event.workers
        if worker.job in state.jobs
    }
    if incarnation > state.incarnations or any(
        generation > state.jobs[job].generation for job, generation in generations.items()
    ):
        lift_incarnations(context, max(incarnation, state.incarnations) + _APART)
        for job_id, job in state.jobs.items():
            lift_generation(context, job, max(job.generation, generations.get(job_id, 0)) + _APART)


def _believed(said: int, known: int) -> int:
    return said if said <= known + _MOST else known


def lift_incarnations(context: EventContext, to: int) -> None:
    """Go on above incarnation `to`: those up to it may have been started already."""
    state = context.state
    if to > state.incarnations:
        state.forgotten_incarnations = [*state.forgotten_incarnations, (state.incarnations, to)][-_STRETCHES:]
        state.incarnations = to


def lift_generation(context: EventContext, job: JobState, to: int) -> None:
    """Go on above generation `to` of the job, which may have been set already. Its membership is set again."""
    if to <= job.generation or job.phase in ENDED:
        return
    before, job.generation = job.generation, to
    context.log(
        job.job.id,
        f"the journal is older than what has run since (was it restored from a copy?): its last "
        f"generation is {before}, and later ones may have been set; the next one is {to + 1}",
    )
    if job.restarts and job.members and job.phase in LIVE:
        relaunch.end_generation(context, job)
    context.change_membership(job.job.id, gone=True)


def adopt(context: EventContext, job: JobState, node: NodeState, worker: ev.RunningWorker) -> bool:
    """Take over a later incarnation of the node's worker that the journal has forgotten: it has the training's state.

    Returns False if it is not such a worker.
    """
    forgotten = any(low < worker.incarnation <= high for low, high in context.state.forgotten_incarnations)
    if not forgotten or job.restarts or job.phase not in LIVE or node.worker == "none":
        return False
    old = node.member
    context.cancel_timer(Timer("ready", node.name, node.incarnation))
    context.cancel_timer(Timer("retry", node.name, node.incarnation))
    node.incarnation = worker.incarnation
    new = node.member if worker.ready else None
    job.members = _replaced(job.members, old, new)
    job.state_holders = _replaced(job.state_holders, old, new)
    job.forming = {generation: _replaced(members, old, new) for generation, members in job.forming.items()}
    job.first_member = new if job.first_member == old else job.first_member
    if job.phase == "running" and not job.members:
        job.phase = "waiting"
    if not worker.ready:
        membership.await_ready(context, node)
    elif node.worker != "member":
        node.worker = "ready"
    context.log(job.job.id, f"{node.name} runs a later worker than the journal knows: it goes on")
    context.change_membership(job.job.id, gone=True)
    return True


def _replaced(members: tuple[Member, ...], old: Member, new: Member | None) -> tuple[Member, ...]:
    found = (new if member == old else member for member in members)
    return tuple(member for member in found if member is not None)
