"""Handlers of events about nodes: offered, booted, wanted, lost, released."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from offcut.control import jobs, membership, node_health, stale_journal
from offcut.control.event_context import EventContext
from offcut.control.state import JobState, NodeState
from offcut.model import events as ev
from offcut.model.effects import Release, StartWorkers, StopWorkers
from offcut.model.events import Member, Timer


def on_nodes_changed(context: EventContext, event: ev.NodesChanged) -> None:
    state = context.state
    lost = set(event.lost)
    context.gone.update(state.nodes[name].incarnation for name in event.lost if name in state.nodes)
    names = dict.fromkeys((*event.wanted, *event.lost))
    gone = [state.nodes[name] for name in names if name in state.nodes]
    wanted = set(event.wanted)
    # Lost nodes too: a batch system may give up a node whose agent it could not end, and only we can tell that agent.
    _release(context, [node for node in gone if node.phase != "idle"])
    if lost:
        for job in [state.jobs[job_id] for job_id in state.started]:
            if not lost.isdisjoint([member.node for member in job.state_holders]):
                membership.note_members_gone(context, job, lambda member: member.node in lost)
                membership.abandon_older_generations(context, job)
    for node in gone:
        forget(context, node, "wanted by the queue" if node.name in wanted else "lost", died=node.name in lost)
    for offer in event.offered:
        present = state.nodes.get(offer.node)
        if present is not None:
            present.until_s = offer.until_s
            continue
        state.nodes[offer.node] = NodeState(offer.node, "idle", context.now_s, offer.until_s)
        if Timer("set_aside", offer.node) in state.timers:
            continue  # released by hand a moment ago, perhaps because its owner wants to use it
        state.free[offer.node] = None
        context.problem_changed = True


def on_nodes_held(context: EventContext, event: ev.NodesHeld) -> None:
    """Compare the nodes that the batch system holds with those of the state, which is what the journal says.

    Nodes that the state does not hold are released, because nothing else would end their pilots. Nodes that the batch
    system does not hold are lost. Idle nodes are removed: the cluster's first look offers those that are idle still.
    """
    nodes = context.state.nodes
    found = set(event.nodes)
    held = {name for name, node in nodes.items() if node.phase != "idle"}
    if unknown := tuple(sorted(found - held)):
        context.emit(Release, nodes=unknown)
    lost = tuple(name for name in nodes if name not in held or name not in found)
    on_nodes_changed(context, ev.NodesChanged(time_s=event.time_s, lost=lost))


def _release(context: EventContext, nodes: list[NodeState]) -> None:
    if nodes:
        context.emit(Release, nodes=tuple(node.name for node in nodes))


def forget(context: EventContext, node: NodeState, why: str, *, died: bool = False) -> None:
    """Remove the node. Unless it `died`, its worker leaves at the next step boundary."""
    state = context.state
    if state.nodes.pop(node.name, None) is None:
        return
    state.free.pop(node.name, None)
    context.problem_changed = True
    if node.job is not None:
        context.log(node.job, f"{node.name} {why}")
        job = state.jobs[node.job]
        if node.worker in ("member", "leaving"):
            job.excuse_failure()
        membership.detach(context, job, node, gone=died)
        jobs.check_finishing(context, job)


def on_claim_refused(context: EventContext, event: ev.ClaimRefused) -> None:
    for name in event.nodes:
        node = context.state.nodes.get(name)
        if node is not None and node.phase == "claimed":
            context.log(name, f"claim refused: {event.reason}")
            forget(context, node, "could not be claimed")


def on_nodes_booted(context: EventContext, event: ev.NodesBooted) -> None:
    state = context.state
    starting: dict[str, list[Member]] = {}
    unknown = []
    for name in dict.fromkeys(event.nodes):
        node = state.nodes.get(name)
        if node is None:
            unknown.append(name)
        elif node.phase in ("idle", "claimed"):
            node.phase = "up"
            context.cancel_timer(Timer("boot", name))
            if node.job is None:
                context.set_timer(Timer("hold", name), state.settings.hold_s)
            else:
                membership.next_incarnation(context, node)
                starting.setdefault(node.job, []).append(node.member)
    if unknown:
        # We do not hold these nodes, so their agents have to end.
        context.emit(Release, nodes=tuple(unknown))
    for job, members in starting.items():
        context.emit(StartWorkers, job=job, members=tuple(members))


def on_agent_reported(context: EventContext, event: ev.AgentReported) -> None:
    """Compare what an agent runs with what it should run; either side may have changed while it was cut off."""
    state = context.state
    running = {(worker.job, worker.incarnation): worker for worker in event.workers}
    stale_journal.note_reported(context, event)
    adopted = state.nodes.get(event.node)
    if adopted is not None and adopted.job is not None:
        for worker in event.workers:
            if worker.job == adopted.job and stale_journal.adopt(context, state.jobs[adopted.job], adopted, worker):
                break
    _note_silent_ends(context, event.node, running.keys())
    node = state.nodes.get(event.node)
    if node is None:
        context.emit(Release, nodes=(event.node,))
        return
    expected = (node.job, node.incarnation) if node.worker not in ("none", "stopped") else None
    if node.phase != "up":
        expected = None
        on_nodes_booted(context, ev.NodesBooted(time_s=event.time_s, nodes=(event.node,)))
    for job, incarnation in running:
        if (job, incarnation) != expected:
            _stop_stray(context, job, Member(node.name, incarnation))
    if expected is None or node.job is None:
        return
    found = running.get((node.job, node.incarnation))
    job_state = state.jobs[node.job]
    if found is None:
        _on_worker_missing(context, job_state, node)
    elif found.ready and node.worker == "starting":
        membership.mark_ready(context, job_state, node)


def _note_silent_ends(context: EventContext, node: str, running: Collection[tuple[str, int]]) -> None:
    """Note the end of members that the node's agent does not run any more: no generation waits for them."""

    def gone(job: JobState, member: Member) -> bool:
        return member.node == node and (job.job.id, member.incarnation) not in running

    for job in [context.state.jobs[job_id] for job_id in context.state.started]:
        # After a restart every agent of a large job reports, and nearly all have their workers still.
        if any(gone(job, member) for member in job.state_holders if member.node == node):
            membership.note_members_gone(context, job, partial(gone, job))


def _stop_stray(context: EventContext, job_id: str, member: Member) -> None:
    """Stop a worker that should not run. One that may be saving the state keeps the time that it was given for it."""
    job = context.state.jobs.get(job_id)
    saving = job is not None and member in job.state_holders
    limit_s = context.state.stop_limit_s(job_id) if saving else 0.0
    context.emit(StopWorkers, job=job_id, members=(member,), limit_s=limit_s)


def _on_worker_missing(context: EventContext, job: JobState, node: NodeState) -> None:
    """Start the worker again that the agent should run and does not: it ended unreported, or the order was lost."""
    job_id, member = job.job.id, node.member
    context.gone.add(member.incarnation)
    context.log(job_id, f"{node.name} came back without its worker")
    job.excuse_failure()
    membership.note_members_gone(context, job, lambda other: other == member)
    if job.phase == "finishing":
        node.worker = "none"
        membership.detach(context, job, node, gone=True)
        jobs.check_finishing(context, job)
        return
    if node.worker == "member":
        context.change_membership(job_id, gone=True)
    membership.restart_worker(context, job, node)


def on_release_asked(context: EventContext, event: ev.ReleaseAsked) -> None:
    state = context.state
    if not event.nodes:
        state.claiming = False
        # The answer to the present problem would claim nodes: a new version makes it stale.
        context.problem_changed = True
    for name in release_held(context, event.nodes or state.nodes, "released by hand"):
        if event.nodes:
            context.set_timer(Timer("set_aside", name), state.settings.rest_s)


def release_held(context: EventContext, names: Iterable[str], why: str) -> list[str]:
    """Release those of the nodes that are held. Return their names."""
    nodes = context.state.nodes
    held = [nodes[name] for name in dict.fromkeys(names) if name in nodes and nodes[name].phase != "idle"]
    _release(context, held)
    for node in held:
        forget(context, node, why)
    return [node.name for node in held]


def set_aside(context: EventContext, node: NodeState) -> None:
    """Release the node, and do not claim it for a while: starts on it fail again and again."""
    _release(context, [node])
    forget(context, node, "set aside")
    _keep_aside(context, node.name)


def _keep_aside(context: EventContext, name: str) -> None:
    settings = context.state.settings
    context.state.set_aside[name] = node_health.reason(context.state, name)
    context.set_timer(Timer("set_aside", name), settings.aside_s)
    context.log(name, f"set aside for {settings.aside_s:g} s: {context.state.set_aside[name]}")


def on_nodes_forgiven(context: EventContext, event: ev.NodesForgiven) -> None:
    state = context.state
    resting = [timer.subject for timer in state.timers if timer.purpose == "set_aside"]
    for name in event.nodes or (*resting, *state.failed_starts):
        node_health.forgive(state, name)
        if context.cancel_timer(Timer("set_aside", name)) is not None:
            context.log(name, "may be claimed again: forgiven by hand")
            end_set_aside(context, name)


def end_set_aside(context: EventContext, name: str) -> None:
    """Let the node be claimed again."""
    if context.state.set_aside.pop(name, None) is not None:
        node_health.forgive(context.state, name)
    node = context.state.nodes.get(name)
    if node is not None and node.phase == "idle":
        context.state.free[name] = None
        context.problem_changed = True


def on_claiming_resumed(context: EventContext, event: ev.ClaimingResumed) -> None:
    context.state.claiming = True
    context.problem_changed = True


def release_unused(context: EventContext, name: str) -> None:
    """Release the node if it is held and has no job."""
    node = context.state.nodes.get(name)
    if node is None or node.job is not None or node.phase != "up":
        return
    live = bool(context.state.started or context.state.queue)
    context.log(name, "released: " + ("no job gains by it" if live else "no job left to run"))
    _release(context, [node])
    forget(context, node, "released")


def give_up_booting(context: EventContext, name: str) -> None:
    """Release a claimed node whose agent has not answered in time."""
    node = context.state.nodes.get(name)
    if node is None or node.phase != "claimed":
        return
    context.log(name, f"no answer from its agent within {context.state.settings.boot_limit_s:g} s: released")
    _release(context, [node])
    forget(context, node, "did not boot")
    node_health.note(context, name, "", "its agent did not answer")
    if node_health.is_bad(context.state, name, its_fault=True):
        _keep_aside(context, name)
