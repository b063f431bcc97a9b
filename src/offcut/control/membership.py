"""From assigned nodes to generations: who is in, who waits, who leaves."""

from __future__ import annotations

from collections.abc import Callable

from offcut.control import admission, curve_learning, probes
from offcut.control.event_context import EventContext
from offcut.control.state import ENDED, LIVE, JobState, NodeState, State
from offcut.model.effects import AbandonOlderGenerations, SetGeneration, StartWorkers
from offcut.model.events import Member, Timer


def assign(context: EventContext, job: JobState, node: NodeState) -> None:
    """The node is the job's from now on; its worker starts as soon as the node is up."""
    context.state.free.pop(node.name, None)
    context.cancel_timer(Timer("hold", node.name))
    node.job = job.job.id
    node.worker = "none"
    job.nodes[node.name] = None
    admission.note_start(context.state, job)


def detach(context: EventContext, job: JobState, node: NodeState, *, gone: bool) -> None:
    """The node is the job's no more.

    A member's departure forces a new generation; `gone`: it may not reach its boundary.
    """
    if node.worker != "none":
        context.change_membership(job.job.id, gone=gone and node.worker == "member")
    job.nodes.pop(node.name, None)
    node.job = None
    node.worker = "none"
    if node.name in context.state.nodes:
        context.state.free[node.name] = None
        context.problem_changed = True
        if node.phase == "up":
            context.set_timer(Timer("hold", node.name), context.state.settings.hold_s)


def leave(context: EventContext, job: JobState, node: NodeState, *, gone: bool) -> None:
    """The job's worker left by itself: its agent was told that the node is wanted, and goes too.

    Nobody else starts there; should the queue's word not follow, the node is used again after a while.
    """
    detach(context, job, node, gone=gone)
    context.state.free.pop(node.name, None)
    context.cancel_timer(Timer("hold", node.name))
    node.phase = "leaving"
    context.set_timer(Timer("leaving", node.name), context.state.settings.leaving_limit_s)


def stay_after_all(context: EventContext, name: str) -> None:
    """The queue did not want the node."""
    node = context.state.nodes.get(name)
    if node is not None and node.phase == "leaving":
        node.phase = "up"
        context.state.free[name] = None
        context.set_timer(Timer("hold", name), context.state.settings.hold_s)
        context.problem_changed = True


def withdraw(context: EventContext, job: JobState, node: NodeState) -> None:
    """Stop the job's worker on the node, if there is one, and take the node from the job."""
    if node.worker not in ("none", "stopped"):
        context.stop_worker(job.job.id, node.member)
    detach(context, job, node, gone=False)


def prepare(context: EventContext, node: NodeState) -> None:
    """A new incarnation is about to start on the node."""
    context.state.incarnations += 1
    node.incarnation = context.state.incarnations
    await_ready(context, node)


def await_ready(context: EventContext, node: NodeState) -> None:
    """The node's worker is booting."""
    node.worker = "starting"
    context.set_timer(Timer("ready", node.name, node.incarnation), context.state.settings.ready_limit_s)


def restart(context: EventContext, job: JobState, node: NodeState) -> None:
    """Start the job's worker on this node again, at once."""
    prepare(context, node)
    context.emit(StartWorkers, job=job.job.id, members=(node.member,))


def mark_ready(context: EventContext, job: JobState, node: NodeState) -> None:
    node.worker = "ready"
    limit_at_s = context.cancel_timer(Timer("ready", node.name, node.incarnation))
    if limit_at_s is not None:
        curve_learning.note_start(context, job, context.now_s - (limit_at_s - context.state.settings.ready_limit_s))
    context.change_membership(job.job.id, gone=False)


def is_member(state: State, job: JobState, member: Member) -> bool:
    """Whether this very incarnation still is in the job's generation."""
    node = state.nodes.get(member.node)
    return (
        node is not None
        and node.job == job.job.id
        and node.incarnation == member.incarnation
        and node.worker == "member"
    )


def staying(state: State, job: JobState) -> list[Member]:
    """The members that `is_member` holds for, in order; asked for all of a large job at once, so spelt out."""
    nodes, job_id = state.nodes, job.job.id
    return [
        member
        for member in job.members
        if (node := nodes.get(member.node)) is not None
        and node.incarnation == member.incarnation
        and node.worker == "member"
        and node.job == job_id
    ]


def settle(context: EventContext, job: JobState, *, gone: bool) -> None:
    """Set a new generation if the job's membership should change now.

    Members keep their order and joiners come after them, so that the first rank always has the state. The size is the
    largest allowed one that members and ready workers can carry: a generation never shrinks unless it has to, and a
    growing one waits a moment for workers that are still starting. Without a death (`gone`) all switch at a step
    boundary.
    """
    if job.phase not in LIVE:
        return
    state = context.state
    stay = staying(state, job)
    nodes = [state.nodes[name] for name in job.nodes]
    ready = [node.member for node in nodes if node.worker == "ready"]
    size = job.job.sizes.largest_within(len(stay) + len(ready))
    if _heirless(job, (stay + ready)[:size]):
        # The state is with members that are leaving: let them save it, then start from what they saved.
        if job.members:
            set_generation(context, job, [], abort=gone)
        if Timer("depart", job.job.id) not in state.timers:
            context.set_timer(Timer("depart", job.job.id), _departure_limit_s(state, job))
        return
    if gone or len(stay) < len(job.members) or (job.members and job.size not in job.job.sizes):
        set_generation(context, job, (stay + ready)[:size], abort=gone)
        return
    if size <= len(stay):
        job.joining_since_s = None
        return
    if size < job.job.sizes.largest_within(len(stay) + len(ready) + sum(node.worker == "starting" for node in nodes)):
        window_s = state.settings.join_window_s
        if job.joining_since_s is None:
            job.joining_since_s = context.now_s
            context.set_timer(Timer("join", job.job.id), window_s)
        if context.now_s < job.joining_since_s + window_s:
            return
    set_generation(context, job, (stay + ready)[:size], abort=False)


def _departure_limit_s(state: State, job: JobState) -> float:
    """How long to wait for the exit of the last holders of the state. On a node that is ours they have as long as they
    were given to save it; a node that is wanted ends them at once, and only word of that may be lost."""
    ours = any(member.node in state.nodes for member in job.state_holders)
    return state.settings.depart_limit_s + (state.stop_limit_s(job.job.id) if ours else 0.0)


def _heirless(job: JobState, members: list[Member]) -> bool:
    if not (members and job.state_holders):
        return False
    return {member.incarnation for member in job.state_holders}.isdisjoint([member.incarnation for member in members])


def note_gone(context: EventContext, job: JobState, gone: Callable[[Member], bool]) -> None:
    """These members are no more: nothing waits any more for them to save the state."""
    before = job.state_holders
    job.state_holders = tuple(member for member in before if not gone(member))
    if before and not job.state_holders:
        context.cancel_timer(Timer("depart", job.job.id))
        if job.phase in LIVE:
            context.change_membership(job.job.id, gone=False)


def give_up_departing(context: EventContext, job: JobState) -> None:
    """The last holders of the state had their time to save it. Members of a generation are no such holders."""
    if not job.members:
        note_gone(context, job, lambda member: True)


def note_formed(context: EventContext, job: JobState, generation: int) -> bool:
    """The members of this generation have the state. False if it is of the past or never was."""
    members = job.forming.get(generation)
    if not members or job.phase in ENDED:
        return False
    nodes = context.state.nodes
    before = {member.incarnation for member in job.state_holders}
    job.state_holders = tuple(
        [
            member
            for member in members
            if member.incarnation in before
            or (
                (node := nodes.get(member.node)) is not None
                and node.incarnation == member.incarnation
                and node.worker != "stopped"
            )
        ]
    )
    job.formed_generation, job.first_member = generation, members[0]
    job.renewals = 0
    job.forming = {newer: members for newer, members in job.forming.items() if newer > generation}
    return True


def entered(job: JobState, member: Member) -> int:
    """The first of the generations that have not formed yet which includes this member; 0 if none does."""
    return next((generation for generation, members in job.forming.items() if member in members), 0)


def set_generation(context: EventContext, job: JobState, members: list[Member], *, abort: bool) -> None:
    """The job's membership is another from now on."""
    state = context.state
    previous = job.members
    job.members = tuple(members)
    job.generation += 1
    job.forming[job.generation] = job.members
    if abort:
        job.abandoned_before = job.generation
    job.joining_since_s = None
    job.size_since_s = context.now_s
    job.resizes += 1
    job.phase = "running" if members else "waiting"
    context.cancel_timer(Timer("renew", job.job.id))
    for member in members:
        state.nodes[member.node].worker = "member"
    # A worker that is no longer a member cannot serve the size, even if its node is still the job's: free the node.
    kept = {member.incarnation for member in members}
    out = [member for member in previous if member.incarnation not in kept]
    unserving = [member for member in out if is_member(state, job, member)]
    context.emit(
        SetGeneration,
        job=job.job.id,
        generation=job.generation,
        members=job.members,
        previous=previous,
        abort=abort,
        departing=tuple(unserving if abort else out),
    )
    for member in unserving:
        node = state.nodes[member.node]
        context.stop_worker(job.job.id, member)
        node.worker = "none"
        detach(context, job, node, gone=False)


def abandon_older_generations(context: EventContext, job: JobState) -> None:
    """A member was lost on the way to the newest generation: others may hang in the one before.

    The newest one stands.
    """
    if (
        job.members
        and not job.restarts
        and job.formed_generation < job.generation
        and job.abandoned_before < job.generation
    ):
        job.abandoned_before = job.generation
        members = tuple(dict.fromkeys((*job.members, *job.state_holders)))
        context.emit(AbandonOlderGenerations, job=job.job.id, members=members)


def await_renewal(context: EventContext, job: JobState) -> bool:
    """Renew the generation after a while, unless it forms or another is set; False if that is under way already."""
    timer = Timer("renew", job.job.id)
    if timer in context.state.timers:
        return False
    context.set_timer(timer, context.state.settings.broken_wait_s * 2.0**job.renewals)
    return True


def renew(context: EventContext, job: JobState) -> None:
    """Set a new generation with the same members: the last one broke and nobody was found dead."""
    job.renewals += 1
    set_generation(context, job, list(job.members), abort=True)


def disband(context: EventContext, job: JobState) -> None:
    """Take all nodes from the job: members leave at their boundary, with the state safe; the rest stop at once."""
    state = context.state
    probes.end_probe(context, job)
    if job.members:
        previous = job.members
        job.members = ()
        job.generation += 1
        job.size_since_s = context.now_s
        context.emit(
            SetGeneration, job=job.job.id, generation=job.generation, members=(), previous=previous, abort=False
        )
    job.joining_since_s = None
    for name in list(job.nodes):
        withdraw(context, job, state.nodes[name])
    context.changed_memberships.pop(job.job.id, None)
    context.problem_changed = True
