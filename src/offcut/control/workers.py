"""Workers report ready, leave, finish, fail and die; generations form and break."""

from __future__ import annotations

from offcut.control import failures, jobs, nodes, profiling, relaunch, resize, suspects
from offcut.control.state import LIVE, JobState, NodeState
from offcut.control.turn import Turn
from offcut.model import events as ev
from offcut.model.events import Member


def _find(turn: Turn, job_id: str, member: Member) -> tuple[JobState, NodeState] | None:
    """The job and node of this incarnation, unless it is of the past."""
    job = turn.state.jobs.get(job_id)
    node = turn.state.nodes.get(member.node)
    if job is None or node is None or node.job != job_id or node.incarnation != member.incarnation:
        return None
    return job, node


def on_workers_ready(turn: Turn, event: ev.WorkersReady) -> None:
    for member in event.members:
        found = _find(turn, event.job, member)
        if found and found[1].worker == "starting":
            resize.mark_ready(turn, *found)


def on_worker_exited(turn: Turn, event: ev.WorkerExited) -> None:
    told = turn.state.jobs.get(event.job)
    if told is not None and event.stable_step and event.member in (*told.members, *told.formed):
        jobs.note_step(told, turn.now_s, event.generation, event.stable_step, event.samples)
    if told is not None and event.member in told.formed:
        resize.note_gone(turn, told, lambda member: member == event.member)
        if event.outcome in ("failed", "lost"):
            resize.abandon_older(turn, told)
    found = _find(turn, event.job, event.member)
    if found is None or found[1].worker in ("none", "stopped"):
        return
    job, node = found
    was_member = node.worker == "member"
    turn.state.timers.pop(f"ready:{node.name}:{node.incarnation}", None)
    if job.restarts and (was_member or node.worker == "leaving"):
        relaunch.on_exit(turn, job, node, event)
    elif job.phase == "finishing":
        jobs.on_exit_while_finishing(turn, job, node, event)
    elif event.outcome == "finished" and was_member:
        jobs.begin_finishing(turn, job)
        jobs.on_exit_while_finishing(turn, job, node, event)
    elif event.outcome == "left":
        turn.tell(event.job, f"its worker on {node.name} left")
        resize.leave(turn, job, node, gone=False)
    else:
        _on_failure(turn, job, node, event, was_member=was_member)


def _on_failure(turn: Turn, job: JobState, node: NodeState, event: ev.WorkerExited, *, was_member: bool) -> None:
    turn.tell(event.job, f"its worker on {node.name} {event.outcome}: {event.detail or 'no reason known'}")
    node.worker = "stopped"
    if was_member:
        turn.resize(event.job, gone=True)
    if event.disk:
        wait_s = failures.await_disk(job, event, turn.now_s, turn.state.settings.retry_wait_s)
        turn.tell(event.job, f"{event.disk}. It is started again in {wait_s:.1f} s; this is not counted as a failure")
        turn.timer(f"retry:{node.name}:{node.incarnation}", wait_s)
        return
    its_fault = False
    if event.generation == 0:
        suspects.note(turn, node.name, event.job, failures.last_line(event))
        its_fault = suspects.is_node_s_fault(turn.state, node.name, job)
    if not its_fault and failures.count(job, event, event.generation or resize.entered(job, event.member)):
        jobs.end(turn, job, "failed", failures.reason(job, event))
    elif event.generation == 0 and suspects.is_bad(turn.state, node.name, its_fault=its_fault):
        nodes.set_aside(turn, node)
    elif its_fault:
        turn.timer(f"retry:{node.name}:{node.incarnation}", suspects.wait_s(turn.state, node.name))
    else:
        _start_again(turn, job, node, event)


def _start_again(turn: Turn, job: JobState, node: NodeState, event: ev.WorkerExited) -> None:
    wait_s = failures.wait_s(job, turn.state.settings.retry_wait_s) if event.outcome == "failed" else 0.0
    if wait_s:
        turn.timer(f"retry:{node.name}:{node.incarnation}", wait_s)
    else:
        resize.restart(turn, job, node)


def retry(turn: Turn, name: str, incarnation: int) -> None:
    """The wait after a failure is over."""
    node = turn.state.nodes.get(name)
    if node and node.job and node.incarnation == incarnation and node.worker == "stopped":
        resize.restart(turn, turn.state.jobs[node.job], node)


def give_up_starting(turn: Turn, name: str, incarnation: int) -> None:
    """The worker has not reported ready in time."""
    node = turn.state.nodes.get(name)
    if node is None or node.job is None or node.incarnation != incarnation or node.worker != "starting":
        return
    job = turn.state.jobs[node.job]
    limit_s = turn.state.settings.ready_limit_s
    turn.stop(node.job, node.member)
    event = ev.WorkerExited(
        time_s=turn.now_s,
        job=node.job,
        member=node.member,
        outcome="failed",
        detail=f"not ready within {limit_s:g} s"
        + ("" if job.restarts else ": does the script reach session.epochs()?"),
    )
    _on_failure(turn, job, node, event, was_member=False)


def on_generation_formed(turn: Turn, event: ev.GenerationFormed) -> None:
    job = turn.state.jobs.get(event.job)
    if job is None:
        return
    before = job.formed
    if resize.note_formed(turn, job, event.generation):
        if event.redone:
            job.redone += event.redone
            job.progress.generation, job.progress.step = event.generation, event.step - 1
        profiling.note_formed(turn, job, event, before)
        failures.forgive(job, event.step)
        if not job.restarts:
            failures.forgive_disk(job)
        for member in job.formed:
            suspects.forgive(turn.state, member.node)
    if event.generation == job.generation:
        turn.state.timers.pop(f"broken:{event.job}", None)
        what = "script launched" if job.restarts else f"at step {event.step}"
        turn.tell(event.job, f"size {job.size} after {1000 * event.took_s:.0f} ms, {what}")


def on_generation_broken(turn: Turn, event: ev.GenerationBroken) -> None:
    """Deaths are reported by agents and by cut connections, and bring a generation of their own; this is for the
    rest.
    """
    job = turn.state.jobs.get(event.job)
    if job is None or job.phase not in LIVE or event.generation > job.generation or job.restarts:
        return
    if event.generation < job.generation:
        # Where that was the controller's own word, everybody has it already.
        resize.abandon_older(turn, job)
        return
    job.broken = f"at {event.member.node}: {event.detail or 'no reason known'}"
    if resize.await_renewal(turn, job):
        turn.tell(event.job, f"generation {event.generation} broke {job.broken}")


def renew(turn: Turn, job_id: str) -> None:
    """The generation broke, and no death has been reported since: the same members try again, or other workers do."""
    job = turn.state.jobs.get(job_id)
    if job is None or job.phase != "running":
        return
    if job.renewals < turn.state.settings.most_renewals:
        resize.renew(turn, job)
        return
    why = f"{job.renewals + 1} generations in a row did not form; the last broke {job.broken}"
    job.renewals = 0
    if failures.count_broken(job):
        jobs.end(turn, job, "failed", why)
        return
    turn.tell(job_id, f"{why}: its workers are started anew")
    resize.disband(turn, job)
    job.phase = "waiting"
