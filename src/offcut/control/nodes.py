"""Nodes come, boot, are wanted back, and vanish."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial

from offcut.control import jobs, numbers, resize, suspects
from offcut.control.state import JobState, NodeState
from offcut.control.turn import Turn
from offcut.model import events as ev
from offcut.model.effects import Release, StartWorkers, StopWorkers
from offcut.model.events import Member


def on_nodes_changed(turn: Turn, event: ev.NodesChanged) -> None:
    state = turn.state
    lost = set(event.lost)
    names = dict.fromkeys((*event.wanted, *event.lost))
    gone = [state.nodes[name] for name in names if name in state.nodes]
    wanted = set(event.wanted)
    _hand_back(turn, [node for node in gone if node.name in wanted and node.phase != "idle"])
    if lost:
        for job in [state.jobs[job_id] for job_id in state.started]:
            if not lost.isdisjoint([member.node for member in job.formed]):
                resize.note_gone(turn, job, lambda member: member.node in lost)
                resize.abandon_older(turn, job)
    for node in gone:
        forget(turn, node, "wanted by the queue" if node.name in wanted else "lost", died=node.name in lost)
    for offer in event.offered:
        known = state.nodes.get(offer.node)
        if known is not None:
            known.until_s = offer.until_s
            continue
        state.nodes[offer.node] = NodeState(offer.node, "idle", turn.now_s, offer.until_s)
        if f"rest:{offer.node}" in state.timers:
            continue  # handed back by hand a moment ago: its owner may want it for something
        state.free[offer.node] = None
        turn.dirty = True


def _hand_back(turn: Turn, nodes: list[NodeState]) -> None:
    if nodes:
        turn.emit(Release, nodes=tuple(node.name for node in nodes))


def forget(turn: Turn, node: NodeState, why: str, *, died: bool = False) -> None:
    """The node is none of ours any more. Unless it `died`, its worker leaves at the next step boundary."""
    state = turn.state
    if state.nodes.pop(node.name, None) is None:
        return
    state.free.pop(node.name, None)
    turn.dirty = True
    if node.job is not None:
        turn.tell(node.job, f"{node.name} {why}")
        job = state.jobs[node.job]
        if node.worker in ("member", "leaving"):
            job.excused = True
        resize.detach(turn, job, node, gone=died)
        jobs.check_finishing(turn, job)


def on_claim_refused(turn: Turn, event: ev.ClaimRefused) -> None:
    for name in event.nodes:
        node = turn.state.nodes.get(name)
        if node is not None and node.phase == "claimed":
            turn.tell(name, f"claim refused: {event.reason}")
            forget(turn, node, "could not be claimed")


def on_nodes_booted(turn: Turn, event: ev.NodesBooted) -> None:
    state = turn.state
    starting: dict[str, list[Member]] = {}
    strangers = []
    for name in dict.fromkeys(event.nodes):
        node = state.nodes.get(name)
        if node is None:
            strangers.append(name)
        elif node.phase in ("idle", "claimed"):
            node.phase = "up"
            state.timers.pop(f"boot:{name}", None)
            if node.job is None:
                turn.timer(f"hold:{name}", state.settings.hold_s)
            else:
                resize.prepare(turn, node)
                starting.setdefault(node.job, []).append(node.member)
    if strangers:
        # An agent on a node that is not ours (any more) has to go.
        turn.emit(Release, nodes=tuple(strangers))
    for job, members in starting.items():
        turn.emit(StartWorkers, job=job, members=tuple(members))


def on_agent_reported(turn: Turn, event: ev.AgentReported) -> None:
    """Compare what an agent runs with what it should run; either side may have changed while it was cut off."""
    state = turn.state
    running = {(worker.job, worker.incarnation): worker for worker in event.workers}
    numbers.note_reported(turn, event)
    adopted = state.nodes.get(event.node)
    if adopted is not None and adopted.job is not None:
        for worker in event.workers:
            if worker.job == adopted.job and numbers.adopt(turn, state.jobs[adopted.job], adopted, worker):
                break
    _note_silent_ends(turn, event.node, running.keys())
    node = state.nodes.get(event.node)
    if node is None:
        turn.emit(Release, nodes=(event.node,))
        return
    expected = (node.job, node.incarnation) if node.worker not in ("none", "stopped") else None
    if node.phase != "up":
        expected = None
        on_nodes_booted(turn, ev.NodesBooted(time_s=event.time_s, nodes=(event.node,)))
    for job, incarnation in running:
        if (job, incarnation) != expected:
            _stop_stray(turn, job, Member(node.name, incarnation))
    if expected is None or node.job is None:
        return
    found = running.get((node.job, node.incarnation))
    job_state = state.jobs[node.job]
    if found is None:
        _on_worker_missing(turn, job_state, node)
    elif found.ready and node.worker == "starting":
        resize.mark_ready(turn, job_state, node)


def _note_silent_ends(turn: Turn, node: str, running: Collection[tuple[str, int]]) -> None:
    """Members of generations that formed which the node's agent does not know of: nobody need wait for them to
    leave.
    """

    def gone(job: JobState, member: Member) -> bool:
        return member.node == node and (job.job.id, member.incarnation) not in running

    for job in [turn.state.jobs[job_id] for job_id in turn.state.started]:
        if any(gone(job, member) for member in job.formed):
            resize.note_gone(turn, job, partial(gone, job))


def _stop_stray(turn: Turn, job_id: str, member: Member) -> None:
    """It should not run. One that is leaving may still be saving the state: it keeps the time that it was given."""
    job = turn.state.jobs.get(job_id)
    saving = job is not None and member in job.formed
    limit_s = turn.state.stop_limit_s(job_id) if saving else 0.0
    turn.emit(StopWorkers, job=job_id, members=(member,), limit_s=limit_s)


def _on_worker_missing(turn: Turn, job: JobState, node: NodeState) -> None:
    """The agent does not run the worker that it should: it ended unheard, or the order to start it was lost."""
    job_id, member = job.job.id, node.member
    turn.tell(job_id, f"{node.name} came back without its worker")
    job.excused = True
    resize.note_gone(turn, job, lambda other: other == member)
    if job.phase == "finishing":
        node.worker = "none"
        resize.detach(turn, job, node, gone=True)
        jobs.check_finishing(turn, job)
        return
    if node.worker == "member":
        turn.resize(job_id, gone=True)
    resize.restart(turn, job, node)


def on_release_asked(turn: Turn, event: ev.ReleaseAsked) -> None:
    state = turn.state
    if not event.nodes:
        state.claiming = False
        # Whatever is being solved would claim nodes: its answer must find itself stale.
        turn.dirty = True
    for name in release_held(turn, event.nodes or state.nodes, "released by hand"):
        if event.nodes:
            turn.timer(f"rest:{name}", state.settings.rest_s)


def release_held(turn: Turn, names: Iterable[str], why: str) -> list[str]:
    """Release those of the nodes that are held; their names."""
    nodes = turn.state.nodes
    held = [nodes[name] for name in dict.fromkeys(names) if name in nodes and nodes[name].phase != "idle"]
    _hand_back(turn, held)
    for node in held:
        forget(turn, node, why)
    return [node.name for node in held]


def set_aside(turn: Turn, node: NodeState) -> None:
    """Hand the node back, and do not claim it for a while: starts on it fail again and again."""
    _hand_back(turn, [node])
    forget(turn, node, "set aside")
    _keep_aside(turn, node.name)


def _keep_aside(turn: Turn, name: str) -> None:
    settings = turn.state.settings
    turn.state.aside[name] = suspects.reason(turn.state, name)
    turn.timer(f"rest:{name}", settings.aside_s)
    turn.tell(name, f"set aside for {settings.aside_s:g} s: {turn.state.aside[name]}")


def end_rest(turn: Turn, name: str) -> None:
    """The node may be claimed again."""
    if turn.state.aside.pop(name, None) is not None:
        suspects.forgive(turn.state, name)
    node = turn.state.nodes.get(name)
    if node is not None and node.phase == "idle":
        turn.state.free[name] = None
        turn.dirty = True


def on_claiming_resumed(turn: Turn, event: ev.ClaimingResumed) -> None:
    turn.state.claiming = True
    turn.dirty = True


def release_unused(turn: Turn, name: str) -> None:
    """The node is held, and no job has wanted it for a while."""
    node = turn.state.nodes.get(name)
    if node is None or node.job is not None or node.phase != "up":
        return
    live = bool(turn.state.started or turn.state.queue)
    turn.tell(name, "handed back: " + ("no job gains by it" if live else "no job left to run"))
    _hand_back(turn, [node])
    forget(turn, node, "handed back")


def give_up_booting(turn: Turn, name: str) -> None:
    """The agent of a claimed node has not answered in time."""
    node = turn.state.nodes.get(name)
    if node is None or node.phase != "claimed":
        return
    turn.tell(name, f"no answer from its agent within {turn.state.settings.boot_limit_s:g} s: handed back")
    _hand_back(turn, [node])
    forget(turn, node, "did not boot")
    suspects.note(turn, name, "", "its agent did not answer")
    if suspects.is_bad(turn.state, name, its_fault=True):
        _keep_aside(turn, name)
