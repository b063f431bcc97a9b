"""Jobs of mode `restart`, whose scripts know nothing of offcut: a resize ends every rank and launches the script anew.

An incarnation lives for one generation. When the membership has to change, all members are told to go, and wherever the
job keeps the node a successor takes the place and waits. Only when nobody of the old generation is left is the next one
set, and its members launch the script: two launches never run at once, and never write to the same checkpoint.

A rank whose peer is gone fails, and that is not its script's fault. So a failure is held against the job only once the
whole generation is accounted for, and only if the generation lost no node.
"""

from __future__ import annotations

from offcut.control import failures, jobs, resize
from offcut.control.state import LIVE, JobState, NodeState
from offcut.control.turn import Turn
from offcut.model import events as ev
from offcut.model.effects import SetGeneration


def settle(turn: Turn, job: JobState) -> None:
    """End the generation if its membership has to change; set the next one when the last is over and enough are
    ready.
    """
    if job.phase not in LIVE:
        return
    nodes = [turn.state.nodes[name] for name in job.nodes]
    if job.members:
        if not _must_end(turn, job, nodes):
            return
        end_generation(turn, job)
    if job.formed:
        _await_departure(turn, job)
    elif _may_go_on(turn, job):
        _launch(turn, job, nodes)


def _must_end(turn: Turn, job: JobState, nodes: list[NodeState]) -> bool:
    sizes = job.job.sizes
    staying = len(resize.staying(turn.state, job))
    if staying < len(job.members) or job.size not in sizes:
        return True
    size = sizes.fit(staying + sum(node.worker == "ready" for node in nodes))
    if size == staying:
        job.joining_since_s = None
        return False
    return not _more_are_coming(turn, job, nodes, size)


def _more_are_coming(turn: Turn, job: JobState, nodes: list[NodeState], size: int) -> bool:
    """Whether nodes are on their way that would make it larger than `size`, and it still is worth waiting for them."""
    here = [node for node in nodes if node.worker in ("member", "ready")]
    coming = [node for node in nodes if node.phase == "claimed" or node.worker in ("starting", "leaving")]
    if job.job.sizes.fit(len(here) + len(coming)) <= size:
        return False
    window_s = turn.state.settings.relaunch_window_s
    if job.joining_since_s is None:
        job.joining_since_s = turn.now_s
        turn.timer(f"join:{job.job.id}", window_s)
    return turn.now_s < job.joining_since_s + window_s


def end_generation(turn: Turn, job: JobState) -> None:
    """Everybody goes, by SIGTERM and within the job's grace; who keeps its node has a successor there."""
    state, previous, staying = turn.state, job.members, resize.staying(turn.state, job)
    # What fails from here on fails because its peers were told to go.
    job.excused = job.excused or job.fault is None
    job.members = ()
    job.generation += 1
    job.joining_since_s = None
    job.size_since_s = turn.now_s
    job.phase = "waiting"
    turn.emit(SetGeneration, job=job.job.id, generation=job.generation, members=(), previous=previous, abort=False)
    for member in staying:
        state.nodes[member.node].worker = "leaving"
        turn.stop(job.job.id, member)


def _await_departure(turn: Turn, job: JobState) -> None:
    key = f"depart:{job.job.id}"
    if key not in turn.state.timers:
        turn.timer(key, job.job.restart_grace_s + turn.state.settings.depart_limit_s)


def _may_go_on(turn: Turn, job: JobState) -> bool:
    """Hold the last generation's failure against the job, if it was its own: it may have to wait, or be one too
    many.
    """
    settings, fault = turn.state.settings, job.fault
    job.fault = None
    progressed = (
        fault is not None and fault.time_s - job.launched_s > settings.restart_cost_s + job.job.checkpoint_age_s
    )
    if fault is not None and fault.disk:
        if progressed:
            failures.forgive_disk(job)
        wait_s = failures.await_disk(job, fault, turn.now_s, settings.retry_wait_s)
        turn.tell(job.job.id, f"{fault.disk}. It is launched again in {wait_s:.1f} s; this is not counted as a failure")
        turn.timer(f"relaunch:{job.job.id}", wait_s)
    elif fault is not None and not job.excused:
        if failures.count_launch(job, progressed=progressed):
            jobs.end(turn, job, "failed", failures.reason(job, fault))
            return False
        turn.timer(f"relaunch:{job.job.id}", failures.wait_s(job, settings.retry_wait_s))
    job.excused = True
    return f"relaunch:{job.job.id}" not in turn.state.timers


def _launch(turn: Turn, job: JobState, nodes: list[NodeState]) -> None:
    ready = [node.member for node in nodes if node.worker == "ready"]
    size = job.job.sizes.fit(len(ready))
    if size == 0 or _more_are_coming(turn, job, nodes, size):
        return
    resize.set_generation(turn, job, ready[:size], abort=False)
    # Whoever is launched may write to the script's checkpoint: nobody else is launched before it has gone.
    resize.note_formed(turn, job, job.generation)
    job.launched_s = turn.now_s
    job.disk = ""
    job.excused, job.done = False, ()


def on_exit(turn: Turn, job: JobState, node: NodeState, event: ev.WorkerExited) -> None:
    """The ranks of a member, or of one that was told to go, have ended."""
    if job.phase == "finishing":
        _on_exit_while_finishing(turn, job, node, event)
        return
    was_member = node.worker == "member"
    if was_member and event.outcome == "finished":
        jobs.begin_finishing(turn, job)
        _on_exit_while_finishing(turn, job, node, event)
    elif was_member and event.outcome == "left":
        turn.tell(event.job, f"its ranks on {node.name} left")
        resize.leave(turn, job, node, gone=True)
    else:
        _note_fault(turn, job, node, event)
        resize.restart(turn, job, node)
        if was_member:
            turn.resize(event.job, gone=True)


def _note_fault(turn: Turn, job: JobState, node: NodeState, event: ev.WorkerExited) -> None:
    if event.outcome not in ("failed", "lost"):
        return
    turn.tell(event.job, f"its ranks on {node.name} {event.outcome}: {event.detail or 'no reason known'}")
    # The first to fail is the likeliest cause; but a rank that was killed did not fail because of its peers.
    if event.disk or job.fault is None or (event.outcome == "lost" and job.fault.outcome == "failed"):
        job.fault = event


def _on_exit_while_finishing(turn: Turn, job: JobState, node: NodeState, event: ev.WorkerExited) -> None:
    """The job is finished when every rank has ended with exit code 0."""
    node.worker = "none"
    if event.outcome == "finished":
        job.done += (event.member,)
        if len(job.done) == len(job.members):
            jobs.end(turn, job, "finished", "every rank of its script came to its end")
        else:
            resize.detach(turn, job, node, gone=False)
        return
    _note_fault(turn, job, node, event)
    job.excused = event.outcome == "left"
    jobs.reopen(turn, job)
