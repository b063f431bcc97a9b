"""What people may ask of a job, whatever they ask by: the owner's API or the page."""

from __future__ import annotations

from typing import Any

from offcut.errors import InputError
from offcut.model import Sizes, events
from offcut.service import job_lookup, sweep_lookup, views
from offcut.service.controller import Controller
from offcut.service.pipeline_jobs import check_sizes

VERBS = {"cancel": events.JobCancelled, "pause": events.JobPaused, "resume": events.JobResumed}


def ask(controller: Controller, job: str, verb: str) -> dict[str, Any]:
    """Let a job be cancelled, paused or resumed, and return it.

    Raises:
        InputError: There is no such job or verb, the job has ended, or it is a trial that its sweep pauses and resumes.
    """
    if verb not in VERBS:
        raise InputError(f"A job cannot be asked to {verb}.", next_step=f"It can: {', '.join(VERBS)}.")
    job_id = job_lookup.find_live(controller, job).job.id
    if verb != "cancel":
        sweep_lookup.refuse_trial(controller.state, job_id)
    controller.ask(VERBS[verb](time_s=controller.clock.now(), job=job_id))
    return views.job(controller, controller.state.jobs[job_id])


def change(
    controller: Controller, job: str, *, sizes: str | None = None, weight: float | None = None
) -> dict[str, Any]:
    """Change a job's sizes or weight, and return it.

    Raises:
        InputError: There is no such job, it has ended, or it cannot have these sizes.
    """
    its = job_lookup.find_live(controller, job).job
    curve = its.curve
    wanted = Sizes.parse(sizes) if sizes is not None else None
    if wanted is not None:
        check_sizes(its, wanted)
    if wanted is not None and curve is not None and wanted.largest > curve.max_nodes:
        raise InputError(
            f"sizes: {wanted.largest} nodes lie outside the job's curve, which ends at {curve.max_nodes}.",
            next_step="Choose sizes that the curve covers.",
        )
    controller.ask(events.JobChanged(time_s=controller.clock.now(), job=its.id, sizes=wanted, weight=weight))
    return views.job(controller, controller.state.jobs[its.id])
