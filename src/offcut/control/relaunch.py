"""Jobs of mode `restart`: a resize ends every rank and launches the script again.

Their scripts do not use offcut. An incarnation lives for one generation. When the membership has to change, all
members are told to end; on each node that stays the job's, a successor starts and waits. The next generation is set
only when no member of the old one is left, and then its members launch the script: two launches never run at once, and
never write to the same checkpoint.

A rank whose peer has died fails, which is not its script's fault. So a failure counts against the job only when the
whole generation has ended, and only if the generation lost no node.
"""

from __future__ import annotations

from offcut.control import failures, jobs, membership
from offcut.control.event_context import EventContext
from offcut.control.state import LIVE, JobState, Launch, NodeState
from offcut.model import events as ev
from offcut.model.effects import SetGeneration
from offcut.model.events import Timer


def _launch_of(job: JobState) -> Launch:
    assert job.launch is not None, "the job's mode is not restart"
    return job.launch


def settle(context: EventContext, job: JobState) -> None:
    """End the generation if its membership has to change. Set the next one when the last has ended and enough workers
    are ready.
    """
    if job.phase not in LIVE:
        return
    nodes = [context.state.nodes[name] for name in job.nodes]
    if job.members:
        if not _must_end(context, job, nodes):
            return
        end_generation(context, job)
    if job.state_holders:
        _await_departure(context, job)
    elif _may_go_on(context, job):
        _launch_script(context, job, nodes)


def _must_end(context: EventContext, job: JobState, nodes: list[NodeState]) -> bool:
    sizes = job.job.sizes
    staying = len(membership.remaining_members(context.state, job))
    if staying < len(job.members) or job.size not in sizes:
        return True
    size = sizes.largest_within(staying + sum(node.worker == "ready" for node in nodes))
    if size == staying:
        job.joining_since_s = None
        return False
    return not _more_are_coming(context, job, nodes, size)


def _more_are_coming(context: EventContext, job: JobState, nodes: list[NodeState], size: int) -> bool:
    """Return whether to wait for nodes that are on their way: with them the job could be larger than `size`."""
    here = [node for node in nodes if node.worker in ("member", "ready")]
    coming = [node for node in nodes if node.phase == "claimed" or node.worker in ("starting", "leaving")]
    if job.job.sizes.largest_within(len(here) + len(coming)) <= size:
        return False
    window_s = context.state.settings.relaunch_window_s
    if job.joining_since_s is None:
        job.joining_since_s = context.now_s
        context.set_timer(Timer("join", job.job.id), window_s)
    return context.now_s < job.joining_since_s + window_s


def end_generation(context: EventContext, job: JobState) -> None:
    """Tell all members to end, by SIGTERM within the job's grace. A node that stays the job's gets a successor."""
    state, previous, staying = context.state, job.members, membership.remaining_members(context.state, job)
    launch = _launch_of(job)
    # Ranks that fail from here on fail because their peers were told to leave.
    launch.excused = launch.excused or launch.failure is None
    job.members = ()
    job.generation += 1
    job.joining_since_s = None
    job.size_since_s = context.now_s
    job.phase = "waiting"
    context.emit(SetGeneration, job=job.job.id, generation=job.generation, members=(), previous=previous, abort=False)
    for member in staying:
        state.nodes[member.node].worker = "leaving"
        context.stop_worker(job.job.id, member)


def _await_departure(context: EventContext, job: JobState) -> None:
    timer = Timer("depart", job.job.id)
    if timer not in context.state.timers:
        context.set_timer(timer, job.job.restart_grace_s + context.state.settings.depart_limit_s)


def _may_go_on(context: EventContext, job: JobState) -> bool:
    """Count the last generation's failure against the job if it was its own. Return whether the job may launch now: it
    may have to wait first, or have failed too often.
    """
    settings, launch = context.state.settings, _launch_of(job)
    failure = launch.failure
    launch.failure = None
    progressed = (
        failure is not None and failure.time_s - launch.launched_s > settings.restart_cost_s + job.job.checkpoint_age_s
    )
    if failure is not None and failure.disk:
        if progressed:
            failures.forgive_disk(job)
        wait_s = failures.await_disk(job, failure, context.now_s, settings.retry_wait_s)
        context.log(
            job.job.id, f"{failure.disk}. It is launched again in {wait_s:.1f} s; this is not counted as a failure"
        )
        context.set_timer(Timer("relaunch", job.job.id), wait_s)
    elif failure is not None and not launch.excused:
        if failures.count_launch(job, progressed=progressed):
            jobs.end(context, job, "failed", failures.reason(job, failure), failures.exit_code(failure))
            return False
        context.set_timer(Timer("relaunch", job.job.id), failures.wait_s(job, settings.retry_wait_s))
    launch.excused = True
    return Timer("relaunch", job.job.id) not in context.state.timers


def _launch_script(context: EventContext, job: JobState, nodes: list[NodeState]) -> None:
    ready = [node.member for node in nodes if node.worker == "ready"]
    size = job.job.sizes.largest_within(len(ready))
    if size == 0 or _more_are_coming(context, job, nodes, size):
        return
    membership.set_generation(context, job, ready[:size], abort=False)
    # A launched member may write to the script's checkpoint: no other is launched before it has ended.
    membership.note_formed(context, job, job.generation)
    launch = _launch_of(job)
    launch.launched_s = context.now_s
    job.disk.reason = ""
    launch.excused, launch.finished = False, ()


def on_exit(context: EventContext, job: JobState, node: NodeState, event: ev.WorkerExited) -> None:
    """Note that the ranks of a member, or of a worker that was told to end, have ended."""
    if job.phase == "finishing":
        _on_exit_while_finishing(context, job, node, event)
        return
    was_member = node.worker == "member"
    if was_member and event.outcome == "finished":
        jobs.begin_finishing(context, job)
        _on_exit_while_finishing(context, job, node, event)
    elif was_member and event.outcome == "left":
        context.log(event.job, f"its ranks on {node.name} left")
        membership.detach_leaving(context, job, node, gone=True)
    else:
        _note_failure(context, job, node, event)
        membership.restart_worker(context, job, node)
        if was_member:
            context.change_membership(event.job, gone=True)


def _note_failure(context: EventContext, job: JobState, node: NodeState, event: ev.WorkerExited) -> None:
    if event.outcome not in ("failed", "lost"):
        return
    context.log(event.job, f"its ranks on {node.name} {event.outcome}: {event.detail or 'no reason known'}")
    launch = _launch_of(job)
    # The first to fail is the likeliest cause; but a rank that was killed did not fail because of its peers.
    if event.disk or launch.failure is None or (event.outcome == "lost" and launch.failure.outcome == "failed"):
        launch.failure = event


def _on_exit_while_finishing(context: EventContext, job: JobState, node: NodeState, event: ev.WorkerExited) -> None:
    """Finish the job if every rank has ended with exit code 0."""
    node.worker = "none"
    launch = _launch_of(job)
    if event.outcome == "finished":
        launch.finished += (event.member,)
        if len(launch.finished) == len(job.members):
            jobs.end(context, job, "finished", "every rank of its script came to its end", 0)
        else:
            membership.detach(context, job, node, gone=False)
        return
    _note_failure(context, job, node, event)
    launch.excused = event.outcome == "left"
    jobs.reopen(context, job)
