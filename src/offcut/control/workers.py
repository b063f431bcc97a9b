"""Handlers of events about workers and generations: ready, ended, formed, broken."""

from __future__ import annotations

from offcut.control import curve_learning, failures, jobs, membership, node_health, nodes, relaunch, unreachable_members
from offcut.control.event_context import EventContext
from offcut.control.state import LIVE, JobState, NodeState
from offcut.model import events as ev
from offcut.model.events import Member, Timer


def _find(context: EventContext, job_id: str, member: Member) -> tuple[JobState, NodeState] | None:
    """Return the job and the node of this incarnation; None if the node has another worker by now."""
    job = context.state.jobs.get(job_id)
    node = context.state.nodes.get(member.node)
    if job is None or node is None or node.job != job_id or node.incarnation != member.incarnation:
        return None
    return job, node


def on_workers_ready(context: EventContext, event: ev.WorkersReady) -> None:
    for member in event.members:
        found = _find(context, event.job, member)
        if found and found[1].worker == "starting":
            membership.mark_ready(context, *found)


def on_worker_exited(context: EventContext, event: ev.WorkerExited) -> None:
    context.gone.add(event.member.incarnation)
    told = context.state.jobs.get(event.job)
    held_state = told is not None and membership.is_among(event.member, told.state_holders)
    if told is not None and event.stable_step and (held_state or membership.is_among(event.member, told.members)):
        jobs.note_step(told, context.now_s, event.generation, event.stable_step, event.samples)
    if told is not None and held_state:
        membership.note_member_gone(context, told, event.member)
        if event.outcome in ("failed", "lost"):
            membership.abandon_older_generations(context, told)
    found = _find(context, event.job, event.member)
    if found is None or found[1].worker in ("none", "stopped"):
        return
    job, node = found
    was_member = node.worker == "member"
    context.cancel_timer(Timer("ready", node.name, node.incarnation))
    if job.restarts and (was_member or node.worker == "leaving"):
        relaunch.on_exit(context, job, node, event)
    elif job.phase == "finishing":
        jobs.on_exit_while_finishing(context, job, node, event)
    elif event.outcome == "finished" and was_member:
        jobs.begin_finishing(context, job)
        jobs.on_exit_while_finishing(context, job, node, event)
    elif event.outcome == "left":
        context.log(event.job, f"its worker on {node.name} left")
        membership.detach_leaving(context, job, node, gone=False)
    else:
        _on_failure(context, job, node, event, was_member=was_member)


def _on_failure(
    context: EventContext, job: JobState, node: NodeState, event: ev.WorkerExited, *, was_member: bool
) -> None:
    context.log(event.job, f"its worker on {node.name} {event.outcome}: {event.detail or 'no reason known'}")
    node.worker = "stopped"
    if was_member:
        context.change_membership(event.job, gone=True)
    if event.disk:
        wait_s = failures.await_disk(job, event, context.now_s, context.state.settings.retry_wait_s)
        context.log(event.job, f"{event.disk}. It is started again in {wait_s:.1f} s; this is not counted as a failure")
        context.set_timer(Timer("retry", node.name, node.incarnation), wait_s)
        return
    its_fault = False
    if event.generation == 0:
        node_health.note(context, node.name, event.job, failures.last_line(event))
        its_fault = node_health.is_node_at_fault(context.state, node.name, job)
    if not its_fault and failures.count(
        job, event, event.generation or membership.first_unformed_generation(job, event.member)
    ):
        jobs.end(context, job, "failed", failures.reason(job, event), failures.exit_code(event))
    elif event.generation == 0 and node_health.is_bad(context.state, node.name, its_fault=its_fault):
        nodes.set_aside(context, node)
    elif its_fault:
        context.set_timer(Timer("retry", node.name, node.incarnation), node_health.wait_s(context.state, node.name))
    elif event.generation == 0 and node_health.is_another_node_free(context.state, job):
        context.log(event.job, f"it is tried on another node than {node.name}")
        membership.stop_and_detach(context, job, node)
    else:
        _start_again(context, job, node, event)


def _start_again(context: EventContext, job: JobState, node: NodeState, event: ev.WorkerExited) -> None:
    wait_s = failures.wait_s(job, context.state.settings.retry_wait_s) if event.outcome == "failed" else 0.0
    if wait_s:
        context.set_timer(Timer("retry", node.name, node.incarnation), wait_s)
    else:
        membership.restart_worker(context, job, node)


def retry(context: EventContext, name: str, incarnation: int) -> None:
    """Start the worker again: the wait after its failure is over."""
    node = context.state.nodes.get(name)
    if node and node.job and node.incarnation == incarnation and node.worker == "stopped":
        membership.restart_worker(context, context.state.jobs[node.job], node)


def give_up_starting(context: EventContext, name: str, incarnation: int) -> None:
    """Stop the worker, which has not reported ready in time, and count that as a failure."""
    node = context.state.nodes.get(name)
    if node is None or node.job is None or node.incarnation != incarnation or node.worker != "starting":
        return
    job = context.state.jobs[node.job]
    limit_s = context.state.settings.ready_limit_s
    context.stop_worker(node.job, node.member)
    event = ev.WorkerExited(
        time_s=context.now_s,
        job=node.job,
        member=node.member,
        outcome="failed",
        detail=f"not ready within {limit_s:g} s"
        + ("" if job.restarts else ": does the script reach session.epochs()?"),
    )
    _on_failure(context, job, node, event, was_member=False)


def on_generation_formed(context: EventContext, event: ev.GenerationFormed) -> None:
    job = context.state.jobs.get(event.job)
    if job is None:
        return
    before = job.state_holders
    if membership.note_formed(context, job, event.generation):
        if event.redone:
            job.redone_steps += event.redone
            job.progress.generation, job.progress.step = event.generation, event.step - 1
        curve_learning.note_formed(context, job, event, before)
        failures.forgive(job, event.step)
        if not job.restarts:
            failures.forgive_disk(job)
        for member in job.state_holders:
            node_health.forgive(context.state, member.node)
    if event.generation == job.generation:
        context.cancel_timer(Timer("renew", event.job))
        what = "script launched" if job.restarts else f"at step {event.step}"
        if event.redone:
            what += f"; at least {event.redone} steps are done again, because no member that had done them was left"
        context.log(event.job, f"size {job.size} after {1000 * event.took_s:.0f} ms, {what}")


def on_generation_broken(context: EventContext, event: ev.GenerationBroken) -> None:
    """Set the generation again after a moment.

    If it broke by a death, agents or cut connections report that first, and a new generation follows from it.
    """
    job = context.state.jobs.get(event.job)
    if job is None or job.phase not in LIVE or event.generation > job.generation or job.restarts:
        return
    if event.generation < job.generation:
        # If the controller ordered that, the members know it already: `abandon_older_generations` does nothing then.
        membership.abandon_older_generations(context, job)
        return
    unreachable_members.note(job, event)
    job.break_reason = f"at {event.member.node}: {event.detail or 'no reason known'}"
    if membership.await_renewal(context, job):
        context.log(event.job, f"generation {event.generation} broke {job.break_reason}")


def renew(context: EventContext, job_id: str) -> None:
    """Set the broken generation again, without members to which others cannot connect.

    After too many times start all workers of the job again.
    """
    job = context.state.jobs.get(job_id)
    if job is None or job.phase != "running" or unreachable_members.drop(context, job):
        return
    if job.renewals < context.state.settings.most_renewals:
        membership.renew(context, job)
        return
    why = f"{job.renewals + 1} generations in a row did not form; the last broke {job.break_reason}"
    job.renewals = 0
    if failures.count_broken(job):
        jobs.end(context, job, "failed", why, 1)
        return
    context.log(job_id, f"{why}: its workers are started again")
    membership.take_all_nodes(context, job)
    job.phase = "waiting"
