"""Handlers of events about jobs: submitted, changed, paused, resumed, cancelled, trained, ended."""

from __future__ import annotations

from dataclasses import replace

from offcut.control import admission, curve_learning, ended_jobs, failures, membership, probes
from offcut.control.event_context import EventContext
from offcut.control.state import ENDED, LIVE, JobPhase, JobState, NodeState, State
from offcut.control.sweep_state import note_trial_end
from offcut.model import Job
from offcut.model import events as ev
from offcut.model.ended_job import CANCELLED_CODE
from offcut.model.events import Timer
from offcut.plaintext import visible


def on_job_submitted(context: EventContext, event: ev.JobSubmitted) -> None:
    submit(context, event.job)


def submit(context: EventContext, submitted: Job) -> None:
    """Add a job to those that wait."""
    if submitted.id in context.state.jobs:
        context.log(submitted.id, "submitted again: ignored")
        return
    job = JobState(submitted, "waiting", context.now_s, size_since_s=context.now_s)
    context.state.jobs[submitted.id] = job
    context.state.submitted = max(context.state.submitted + 1, len(context.state.jobs))
    admission.enqueue(context.state, job)
    if submitted.family is not None:
        context.state.histories.join(submitted.id, f"family {submitted.family}")
    context.log(submitted.id, f"submitted, sizes {submitted.sizes}")
    context.problem_changed = True


def note_progress(state: State, event: ev.JobProgressed) -> None:
    job = state.jobs.get(event.job)
    if job is not None and note_step(job, event.time_s, event.generation, event.step, event.samples):
        job.progress.loss = event.loss
        job.progress.total_steps, job.progress.total_samples = event.total_steps, event.total_samples


def note_step(job: JobState, time_s: float, generation: int, step: int, samples: int) -> bool:
    """Note how far the job is. Return False if more is known already.

    Steps go back only with a generation that has formed.
    """
    progress = job.progress
    if (generation, step) < (progress.generation, progress.step) or (
        step < progress.step and generation > job.formed_generation
    ):
        return False
    progress.generation, progress.step, progress.samples, progress.time_s = generation, step, samples, time_s
    return True


def on_job_noted(context: EventContext, event: ev.JobNoted) -> None:
    context.log(event.job, event.text)


def on_job_cancelled(context: EventContext, event: ev.JobCancelled) -> None:
    job = context.state.jobs.get(event.job)
    if job is not None and job.phase not in ENDED:
        end(context, job, "cancelled", "cancelled by hand", CANCELLED_CODE)


def on_job_paused(context: EventContext, event: ev.JobPaused) -> None:
    pause(context, context.state.jobs.get(event.job))


def pause(context: EventContext, job: JobState | None) -> None:
    """Take all nodes from a live job; its state is kept."""
    if job is not None and job.phase in LIVE:
        membership.take_all_nodes(context, job)
        job.phase = "paused"
        context.log(job.job.id, "paused")


def on_job_resumed(context: EventContext, event: ev.JobResumed) -> None:
    resume(context, context.state.jobs.get(event.job))


def resume(context: EventContext, job: JobState | None) -> None:
    """Let a paused job take part in the allocation again."""
    if job is not None and job.phase == "paused":
        job.phase = "waiting"
        context.log(job.job.id, "resumed")
        context.problem_changed = True


def on_job_changed(context: EventContext, event: ev.JobChanged) -> None:
    job = context.state.jobs.get(event.job)
    if job is None or job.phase in ENDED:
        return
    sizes, curve = event.sizes or job.job.sizes, job.job.curve
    if curve is not None and sizes.largest > curve.max_nodes:
        context.log(event.job, f"not changed: sizes {sizes} lie outside its curve, which ends at {curve.max_nodes}")
        return
    weight = job.job.weight if event.weight is None else event.weight
    job.job = replace(job.job, sizes=sizes, weight=weight)
    context.state.histories.find_or_add(event.job).version += 1
    context.log(event.job, f"changed: sizes {job.job.sizes}, weight {job.job.weight:g}")
    context.problem_changed = True
    # Without members its workers may have waited for others, and need not any more.
    if job.nodes and job.size not in job.job.sizes:
        context.change_membership(event.job, gone=False)


def on_job_nears_end(context: EventContext, event: ev.JobNearsEnd) -> None:
    if nears_end(context.state, event.job, event.left_s):
        context.state.jobs[event.job].nears_end = True
        context.problem_changed = True


def nears_end(state: State, job_id: str, left_s: float) -> bool:
    """Return whether the job's successor may start: the job has `left_s` seconds of training left at its present rate.

    Who measures the rate asks this first, so that the journal holds one `JobNearsEnd` per job.
    """
    job = state.jobs.get(job_id)
    return (
        job is not None and job.phase == "running" and not job.nears_end and left_s <= state.settings.successor_lead_s
    )


def on_job_trained(context: EventContext, event: ev.JobTrained) -> None:
    job = context.state.jobs.get(event.job)
    if job is None or job.phase != "running" or job.restarts:
        return
    if event.step:
        note_step(job, context.now_s, event.generation, event.step, event.samples)
    membership.note_formed(context, job, event.generation)
    if event.generation != job.formed_generation:
        return  # of the past: a newer generation has trained on
    # A newer generation may be forming: the members that have trained are those of the last one that formed.
    holders = set(job.state_holders)
    job.members = tuple(member for member in job.members if member in holders)
    begin_finishing(context, job)
    if job.first_member not in job.members:
        reopen(context, job)


def begin_finishing(context: EventContext, job: JobState) -> None:
    """Begin the job's end: a member's script is past its training. The membership stays until all have ended."""
    probes.end_probe(context, job)
    job.phase = "finishing"
    context.set_timer(Timer("finish", job.job.id), job.finish_limit_s)
    members = {member.incarnation for member in job.members}
    for name in list(job.nodes):
        node = context.state.nodes[name]
        if node.incarnation not in members or node.worker != "member":
            membership.stop_and_detach(context, job, node)
    context.problem_changed = True


def on_exit_while_finishing(context: EventContext, job: JobState, node: NodeState, event: ev.WorkerExited) -> None:
    """Answer the exit of a member whose script is past its training.

    The first member does what is done once, such as saving the model: the job has ended when it has.
    """
    if job.first_member is not None and job.first_member not in job.members:
        # The others ran their end without it, so that what is done once was not done.
        node.worker = "none"
        reopen(context, job)
    elif job.members[0] != event.member:
        node.worker = "none"
        (membership.detach_leaving if event.outcome == "left" else membership.detach)(context, job, node, gone=False)
    elif event.outcome in ("finished", "left"):
        end(context, job, "finished", "its script came to its end", 0)
    elif event.disk:
        context.log(job.job.id, f"{event.disk}. This is not counted as a failure")
        node.worker = "none"
        membership.detach(context, job, node, gone=True)
        reopen(context, job)
    elif event.outcome == "failed":
        reason = f"its script failed after training: {failures.last_line(event)}"
        end(context, job, "failed", reason, failures.exit_code(event))
    elif failures.count(job, event, job.generation):
        end(context, job, "failed", failures.reason(job, event), failures.exit_code(event))
    else:
        node.worker = "none"
        membership.detach(context, job, node, gone=True)
        reopen(context, job)


def reopen(context: EventContext, job: JobState) -> None:
    """Run the end of the script again, from the final checkpoint: a member that it needs was lost."""
    who = "a member" if job.restarts else "its first member"
    context.log(job.job.id, f"{who} was lost while finishing: its script runs its end again")
    membership.take_all_nodes(context, job)
    job.phase = "waiting"
    context.cancel_timer(Timer("finish", job.job.id))
    context.problem_changed = True


def check_finishing(context: EventContext, job: JobState) -> None:
    """Run a finishing job's end again if a member that the end needs was on the node that went away."""
    if job.phase != "finishing":
        return
    if job.launch is not None:
        needed = tuple(member for member in job.members if member not in job.launch.finished)
    else:
        needed = job.members[:1]
    if not all(membership.is_member(context.state, job, member) for member in needed):
        reopen(context, job)


def end(context: EventContext, job: JobState, phase: JobPhase, reason: str, exit_code: int) -> None:
    membership.take_all_nodes(context, job)
    job.phase = phase
    job.exit_code = exit_code
    admission.note_end(context.state, job)
    job.reason = visible(reason)
    job.ended_s = context.now_s
    curve_learning.note_end(context, job)
    job.state_holders, job.forming = (), {}
    context.cancel_timer(Timer("finish", job.job.id))
    context.log(job.job.id, f"{phase}: {reason}")
    ended_jobs.note_end(context, job)
    node_s = job.node_s(context.now_s)
    note_trial_end(context.state.sweeps, job.job.id, failed=phase != "finished", reason=job.reason, node_s=node_s)


def give_up_finishing(context: EventContext, job_id: str) -> None:
    job = context.state.jobs.get(job_id)
    if job is not None and job.phase == "finishing":
        limit_s = f"{job.finish_limit_s:g} s"
        if job.restarts:
            why = f"ranks of it still ran {limit_s} after others had come to their end"
        else:
            why = (
                f"it has trained, but its script still ran {limit_s} after its last step: what it saves may be missing"
            )
        end(context, job, "failed", f"ended while finishing (finish_limit_s): {why}", 1)
