"""Jobs are submitted, changed, paused, cancelled, and come to their end."""

from __future__ import annotations

from dataclasses import replace

from offcut.control import admit, failures, profiling, resize
from offcut.control.state import ENDED, LIVE, JobPhase, JobState, NodeState, State
from offcut.control.turn import Turn
from offcut.model import events as ev
from offcut.plaintext import visible


def on_job_submitted(turn: Turn, event: ev.JobSubmitted) -> None:
    if event.job.id in turn.state.jobs:
        turn.tell(event.job.id, "submitted again: ignored")
        return
    job = JobState(event.job, "waiting", turn.now_s, size_since_s=turn.now_s)
    turn.state.jobs[event.job.id] = job
    admit.enqueue(turn.state, job)
    if event.job.family is not None:
        turn.state.knowledge.join(event.job.id, f"family {event.job.family}")
    turn.tell(event.job.id, f"submitted, sizes {event.job.sizes}")
    turn.dirty = True


def note_progress(state: State, event: ev.JobProgressed) -> None:
    job = state.jobs.get(event.job)
    if job is not None and note_step(job, event.time_s, event.generation, event.step, event.samples):
        job.progress.loss = event.loss


def note_step(job: JobState, time_s: float, generation: int, step: int, samples: int) -> bool:
    """Note how far the job is; False if more is known. It goes back only with a generation that has formed."""
    progress = job.progress
    if (generation, step) < (progress.generation, progress.step) or (
        step < progress.step and generation > job.formed_generation
    ):
        return False
    progress.generation, progress.step, progress.samples, progress.time_s = generation, step, samples, time_s
    return True


def on_job_noted(turn: Turn, event: ev.JobNoted) -> None:
    turn.tell(event.job, event.text)


def on_job_cancelled(turn: Turn, event: ev.JobCancelled) -> None:
    job = turn.state.jobs.get(event.job)
    if job is not None and job.phase not in ENDED:
        end(turn, job, "cancelled", "cancelled by hand")


def on_job_paused(turn: Turn, event: ev.JobPaused) -> None:
    job = turn.state.jobs.get(event.job)
    if job is not None and job.phase in LIVE:
        resize.disband(turn, job)
        job.phase = "paused"
        turn.tell(event.job, "paused")


def on_job_resumed(turn: Turn, event: ev.JobResumed) -> None:
    job = turn.state.jobs.get(event.job)
    if job is not None and job.phase == "paused":
        job.phase = "waiting"
        turn.tell(event.job, "resumed")
        turn.dirty = True


def on_job_changed(turn: Turn, event: ev.JobChanged) -> None:
    job = turn.state.jobs.get(event.job)
    if job is None or job.phase in ENDED:
        return
    sizes, curve = event.sizes or job.job.sizes, job.job.curve
    if curve is not None and sizes.largest > curve.max_nodes:
        turn.tell(event.job, f"not changed: sizes {sizes} lie outside its curve, which ends at {curve.max_nodes}")
        return
    weight = job.job.weight if event.weight is None else event.weight
    job.job = replace(job.job, sizes=sizes, weight=weight)
    turn.state.knowledge.of(event.job).version += 1
    turn.tell(event.job, f"changed: sizes {job.job.sizes}, weight {job.job.weight:g}")
    turn.dirty = True
    if job.members and job.size not in job.job.sizes:
        turn.resize(event.job, gone=False)


def on_job_nears_end(turn: Turn, event: ev.JobNearsEnd) -> None:
    job = turn.state.jobs.get(event.job)
    if job is not None and job.phase == "running" and not job.nears_end:
        job.nears_end = True
        turn.dirty = True


def on_job_trained(turn: Turn, event: ev.JobTrained) -> None:
    job = turn.state.jobs.get(event.job)
    if job is None or job.phase != "running" or job.restarts:
        return
    if event.step:
        note_step(job, turn.now_s, event.generation, event.step, event.samples)
    resize.note_formed(turn, job, event.generation)
    if event.generation != job.formed_generation:
        return  # of the past: a newer generation has trained on
    # A newer generation may have been on its way: those who have trained are all in the last one that formed.
    job.members = tuple(member for member in job.members if member in job.formed)
    begin_finishing(turn, job)
    if job.first not in job.members:
        reopen(turn, job)


def begin_finishing(turn: Turn, job: JobState) -> None:
    """A member's script is past its training: the membership stays as it is while all come to their end."""
    job.phase = "finishing"
    turn.timer(f"finish:{job.job.id}", job.finish_limit_s)
    members = {member.incarnation for member in job.members}
    for name in list(job.nodes):
        node = turn.state.nodes[name]
        if node.incarnation not in members or node.worker != "member":
            resize.withdraw(turn, job, node)
    turn.dirty = True


def on_exit_while_finishing(turn: Turn, job: JobState, node: NodeState, event: ev.WorkerExited) -> None:
    """The first member does what is done once (saving the model, say): when it has ended, so has the job."""
    if job.first is not None and job.first not in job.members:
        # The others ran their end without it, and nobody did what is done once.
        node.worker = "none"
        reopen(turn, job)
    elif job.members[0] != event.member:
        node.worker = "none"
        (resize.leave if event.outcome == "left" else resize.detach)(turn, job, node, gone=False)
    elif event.outcome in ("finished", "left"):
        end(turn, job, "finished", "its script came to its end")
    elif event.disk:
        turn.tell(job.job.id, f"{event.disk}. This is not counted as a failure")
        node.worker = "none"
        resize.detach(turn, job, node, gone=True)
        reopen(turn, job)
    elif event.outcome == "failed":
        end(turn, job, "failed", f"its script failed after training: {event.detail}")
    elif failures.count(job, event, job.generation):
        end(turn, job, "failed", failures.reason(job, event))
    else:
        node.worker = "none"
        resize.detach(turn, job, node, gone=True)
        reopen(turn, job)


def reopen(turn: Turn, job: JobState) -> None:
    """The first member was lost before its script came to the end: run the end again, from the final checkpoint."""
    who = "a member" if job.restarts else "its first member"
    turn.tell(job.job.id, f"{who} was lost while finishing: its script runs its end again")
    resize.disband(turn, job)
    job.phase = "waiting"
    turn.state.timers.pop(f"finish:{job.job.id}", None)
    turn.dirty = True


def check_finishing(turn: Turn, job: JobState) -> None:
    """A node of a finishing job went away: did one go with it that the end cannot do without?"""
    if job.phase != "finishing":
        return
    needed = [member for member in job.members if member not in job.done] if job.restarts else job.members[:1]
    if not all(resize.is_member(turn.state, job, member) for member in needed):
        reopen(turn, job)


def end(turn: Turn, job: JobState, phase: JobPhase, reason: str) -> None:
    resize.disband(turn, job)
    job.phase = phase
    admit.note_end(turn.state, job)
    job.reason = visible(reason)
    job.ended_s = turn.now_s
    profiling.note_end(turn, job)
    job.formed, job.forming = (), {}
    turn.state.timers.pop(f"finish:{job.job.id}", None)
    turn.tell(job.job.id, f"{phase}: {reason}")


def give_up_finishing(turn: Turn, job_id: str) -> None:
    job = turn.state.jobs.get(job_id)
    if job is not None and job.phase == "finishing":
        limit_s = f"{job.finish_limit_s:g} s"
        if job.restarts:
            why = f"ranks of it still ran {limit_s} after others had come to their end"
        else:
            why = (
                f"it has trained, but its script still ran {limit_s} after its last step: what it saves may be missing"
            )
        end(turn, job, "failed", f"ended while finishing (finish_limit_s): {why}")
