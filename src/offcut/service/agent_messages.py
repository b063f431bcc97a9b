"""Translates between the controller and its agents: a job's launch into a message, reports into events. Pure."""

from __future__ import annotations

from pathlib import Path

from offcut.model import Job, events
from offcut.model.events import Member
from offcut.wire import messages


def launch_of(job: Job, directory: Path, umask: int | None) -> messages.Launch:
    """Return what an agent needs to know to start the job's workers; the job's files lie in `directory`."""
    return messages.Launch(
        job=job.id,
        command=job.command,
        workdir=job.workdir,
        env=dict(job.env),
        setup=job.setup,
        ranks_per_node=job.ranks_per_node,
        mode=job.mode,
        directory=str(directory),
        goal_samples=job.goal_samples,
        checkpoint_age_s=job.checkpoint_age_s,
        hang_limit_s=job.hang_limit_s,
        restart_grace_s=job.restart_grace_s,
        step_records=job.step_records,
        umask=umask,
    )


def ready_of(now_s: float, node: str, message: messages.Ready) -> events.WorkersReady:
    """Return the event that a worker on `node` has booted."""
    return events.WorkersReady(time_s=now_s, job=message.job, members=(Member(node, message.incarnation),))


def exit_of(now_s: float, node: str, message: messages.Exited) -> events.WorkerExited:
    """Return the event that a worker on `node` has ended."""
    return events.WorkerExited(
        time_s=now_s,
        job=message.job,
        member=Member(node, message.incarnation),
        outcome=message.outcome,
        detail=message.detail,
        generation=message.generation,
        stable_step=message.stable_step,
        samples=message.samples,
        disk=message.disk,
        code=message.code,
    )


def event_of(
    now_s: float,
    node: str,
    message: messages.Trained | messages.Broken | messages.Progress | messages.Note,
) -> events.Event:
    """Return the event for a report from `node`. It is answered at once."""
    match message:
        case messages.Trained():
            return events.JobTrained(
                time_s=now_s, job=message.job, generation=message.generation, step=message.step, samples=message.samples
            )
        case messages.Broken():
            return events.GenerationBroken(
                time_s=now_s,
                job=message.job,
                generation=message.generation,
                member=Member(node, message.incarnation),
                detail=message.detail,
                unreachable=message.unreachable,
            )
        case messages.Progress():
            return events.JobProgressed(
                time_s=now_s,
                job=message.job,
                generation=message.generation,
                step=message.step,
                samples=message.samples,
                loss=float("nan") if message.loss is None else message.loss,
                total_steps=message.total_steps,
                total_samples=message.total_samples,
            )
        case messages.Note():
            return events.JobNoted(time_s=now_s, job=message.job, text=message.text)
