"""Sets the generations of a job from the nodes assigned to it: who is a member, who waits, who leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from offcut.control import admission, curve_learning, probes
from offcut.control.event_context import EventContext
from offcut.control.state import ENDED, LIVE, JobState, NodeState, State
from offcut.model.effects import AbandonOlderGenerations, SetGeneration, StartWorkers
from offcut.model.events import Member, Timer


def assign(context: EventContext, job: JobState, node: NodeState) -> None:
    """Assign the node to the job. Its worker starts as soon as the node is up."""
    context.state.free.pop(node.name, None)
    context.cancel_timer(Timer("hold", node.name))
    node.job = job.job.id
    node.worker = "none"
    job.note_node_s(context.now_s)
    job.nodes[node.name] = None
    admission.note_start(context.state, job)


def detach(context: EventContext, job: JobState, node: NodeState, *, gone: bool) -> None:
    """Take the node from the job. A member's departure needs a new generation.

    `gone`: the member may not reach its step boundary.
    """
    if node.worker != "none":
        context.change_membership(job.job.id, gone=gone and node.worker == "member")
    job.note_node_s(context.now_s)
    job.nodes.pop(node.name, None)
    node.job = None
    node.worker = "none"
    if node.name in context.state.nodes:
        context.state.free[node.name] = None
        context.problem_changed = True
        if node.phase == "up":
            context.set_timer(Timer("hold", node.name), context.state.settings.hold_s)


def detach_leaving(context: EventContext, job: JobState, node: NodeState, *, gone: bool) -> None:
    """Take the node from the job, whose worker left by itself: its agent was told that the queue wants the node.

    No worker is started there. If the queue does not take the node within `leaving_limit_s`, it is used again.
    """
    detach(context, job, node, gone=gone)
    context.state.free.pop(node.name, None)
    context.cancel_timer(Timer("hold", node.name))
    node.phase = "leaving"
    context.set_timer(Timer("leaving", node.name), context.state.settings.leaving_limit_s)


def use_again(context: EventContext, name: str) -> None:
    """Use the node again: its worker left, and the queue has not taken it."""
    node = context.state.nodes.get(name)
    if node is not None and node.phase == "leaving":
        node.phase = "up"
        context.state.free[name] = None
        context.set_timer(Timer("hold", name), context.state.settings.hold_s)
        context.problem_changed = True


def stop_and_detach(context: EventContext, job: JobState, node: NodeState) -> None:
    """Stop the job's worker on the node, if there is one, and take the node from the job."""
    if node.worker not in ("none", "stopped"):
        context.stop_worker(job.job.id, node.member)
    detach(context, job, node, gone=False)


def next_incarnation(context: EventContext, node: NodeState) -> None:
    """Give the node's next worker its incarnation, and wait until it is ready."""
    context.state.incarnations += 1
    node.incarnation = context.state.incarnations
    await_ready(context, node)


def await_ready(context: EventContext, node: NodeState) -> None:
    """Wait until the node's worker is ready, for `ready_limit_s` at most."""
    node.worker = "starting"
    context.set_timer(Timer("ready", node.name, node.incarnation), context.state.settings.ready_limit_s)


def restart_worker(context: EventContext, job: JobState, node: NodeState) -> None:
    """Start a new worker of the job on this node, at once."""
    next_incarnation(context, node)
    context.emit(StartWorkers, job=job.job.id, members=(node.member,))


def mark_ready(context: EventContext, job: JobState, node: NodeState) -> None:
    node.worker = "ready"
    limit_at_s = context.cancel_timer(Timer("ready", node.name, node.incarnation))
    if limit_at_s is not None:
        curve_learning.note_start(context, job, context.now_s - (limit_at_s - context.state.settings.ready_limit_s))
    context.change_membership(job.job.id, gone=False)


def is_among(member: Member, members: tuple[Member, ...]) -> bool:
    """Return whether it is one of these members. As `in`, but fast for a whole large job."""
    incarnation = member.incarnation
    return any(other.node == member.node for other in members if other.incarnation == incarnation)


def is_member(state: State, job: JobState, member: Member) -> bool:
    """Return whether this incarnation still is in the job's generation."""
    node = state.nodes.get(member.node)
    return (
        node is not None
        and node.job == job.job.id
        and node.incarnation == member.incarnation
        and node.worker == "member"
    )


def remaining_members(state: State, job: JobState) -> list[Member]:
    """Return the members that still are in the generation, in order. As `is_member`, but fast for a whole large job."""
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
    stay = remaining_members(state, job)
    nodes = [state.nodes[name] for name in job.nodes]
    ready = [node.member for node in nodes if node.worker == "ready"]
    size = job.job.sizes.largest_within(len(stay) + len(ready))
    if _loses_state(job, (stay + ready)[:size]):
        # Only members that are leaving have the state: they save it first, and the next generation starts from that.
        if job.members:
            set_generation(context, job, [], abort=gone)
        if Timer("depart", job.job.id) not in state.timers:
            context.set_timer(Timer("depart", job.job.id), departure_limit_s(state, job))
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


def departure_limit_s(state: State, job: JobState) -> float:
    """Return how long to wait for the exit of the last members that have the state, in seconds.

    On a node that we hold they have as long as they were given to save it. A node that the queue wants ends them at
    once, so that only the report of their exit can be missing.
    """
    held = any(member.node in state.nodes for member in job.state_holders)
    return state.settings.depart_limit_s + (state.stop_limit_s(job.job.id) if held else 0.0)


def _loses_state(job: JobState, members: list[Member]) -> bool:
    if not (members and job.state_holders):
        return False
    return {member.incarnation for member in job.state_holders}.isdisjoint([member.incarnation for member in members])


def note_members_gone(context: EventContext, job: JobState, gone: Callable[[Member], bool]) -> None:
    """Note that these members are gone: no generation waits any longer until they have saved the state."""
    _note_holders(context, job, tuple([member for member in job.state_holders if not gone(member)]))


def note_member_gone(context: EventContext, job: JobState, member: Member) -> None:
    """Note that this member is gone. As `note_members_gone`, but fast for a whole large job."""
    node, incarnation = member.node, member.incarnation
    left = [other for other in job.state_holders if other.incarnation != incarnation or other.node != node]
    _note_holders(context, job, tuple(left))


def _note_holders(context: EventContext, job: JobState, left: tuple[Member, ...]) -> None:
    before, job.state_holders = job.state_holders, left
    if before and not left:
        context.cancel_timer(Timer("depart", job.job.id))
        if job.phase in LIVE:
            context.change_membership(job.job.id, gone=False)


def give_up_departing(context: EventContext, job: JobState) -> None:
    """Stop waiting for the last members that have the state, unless they are members of a generation again."""
    if not job.members:
        note_members_gone(context, job, lambda member: True)


def note_formed(context: EventContext, job: JobState, generation: int) -> bool:
    """Note that this generation formed: its members have the state.

    Returns False if the generation is an old one, or none of the job's.
    """
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


def first_unformed_generation(job: JobState, member: Member) -> int:
    """Return the first of the generations not formed yet that includes this member; 0 if none does."""
    return next((generation for generation, members in job.forming.items() if member in members), 0)


def _note_leaving(context: EventContext, job: JobState, leaving: Iterable[Member]) -> None:
    """Count members that leave as holders of the state if a generation with them is forming.

    It may have formed, and its report be on its way: then they have the state, and save it before they end.
    """
    unformed = {member.incarnation for members in job.forming.values() for member in members}
    known = {member.incarnation for member in job.state_holders} | context.gone
    may_have = [member for member in leaving if member.incarnation in unformed and member.incarnation not in known]
    if may_have and not job.restarts:
        job.state_holders = (*job.state_holders, *may_have)


def set_generation(context: EventContext, job: JobState, members: list[Member], *, abort: bool) -> None:
    """Set the job's next generation, with these members."""
    state = context.state
    previous = job.members
    kept = {member.incarnation for member in members}
    # A member that is left out although its node is still the job's does not fit the size: free the node.
    out = [member for member in previous if member.incarnation not in kept]
    _note_leaving(context, job, out)
    job.members = tuple(members)
    job.generation += 1
    job.forming[job.generation] = job.members
    if abort:
        job.abandoned_before = job.generation
    job.unreachable = ()
    job.joining_since_s = None
    job.size_since_s = context.now_s
    job.resizes += 1
    job.phase = "running" if members else "waiting"
    context.cancel_timer(Timer("renew", job.job.id))
    for member in members:
        state.nodes[member.node].worker = "member"
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
    """Tell the members that what is in flight under older generations may never end.

    To be called when a member was lost on the way to the newest generation, for others may wait for it in the one
    before. The newest generation stays as it is.
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
    """Set the generation again after a while, unless it forms before or another one is set.

    Returns False if that is already awaited.
    """
    timer = Timer("renew", job.job.id)
    if timer in context.state.timers:
        return False
    context.set_timer(timer, context.state.settings.broken_wait_s * 2.0**job.renewals)
    return True


def renew(context: EventContext, job: JobState) -> None:
    """Set a new generation with the same members: the last one broke, and no member was found dead."""
    job.renewals += 1
    set_generation(context, job, list(job.members), abort=True)


def take_all_nodes(context: EventContext, job: JobState) -> None:
    """Take all nodes from the job. Members leave at their step boundary with the state saved; others stop at once."""
    state = context.state
    probes.end_probe(context, job)
    if job.members:
        previous = job.members
        _note_leaving(context, job, previous)
        job.members = ()
        job.generation += 1
        job.size_since_s = context.now_s
        context.emit(
            SetGeneration, job=job.job.id, generation=job.generation, members=(), previous=previous, abort=False
        )
    job.joining_since_s = None
    for name in list(job.nodes):
        stop_and_detach(context, job, state.nodes[name])
    context.changed_memberships.pop(job.job.id, None)
    context.problem_changed = True
