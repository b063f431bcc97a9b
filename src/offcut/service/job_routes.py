"""The part of the API that is about jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from offcut.errors import InputError
from offcut.model import events
from offcut.model.ended_job import EndedJob
from offcut.process.daemon_thread import in_daemon_thread
from offcut.service import (
    curve_report,
    explain,
    explain_trial,
    job_actions,
    job_lookup,
    loss_history,
    sweep_lookup,
    sweep_routes,
    views,
)
from offcut.service.controller import Controller
from offcut.service.paths import StatePaths
from offcut.service.pipeline_jobs import with_plans
from offcut.store.journal import Journal
from offcut.wire.jobspec import JobSpec, Weight

#: At most this many lines of a job's log are returned at once.
_MOST_LINES = 10_000


class JobChange(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    sizes: str | None = None
    weight: Weight | None = None


class Forgotten(BaseModel):
    model_config = ConfigDict(extra="forbid")
    jobs: list[str] = Field(min_length=1, max_length=10_000)
    files: bool = False


def job_routes(controller: Controller, journal: Journal, paths: StatePaths) -> APIRouter:
    """Return the routes that submit, show and change jobs."""
    routes = APIRouter()

    @routes.post("/v1/jobs")
    async def _submit(spec: JobSpec) -> dict[str, Any]:
        if spec.env_file is not None:
            raise InputError(
                "env_file: the file is read on the machine that submits the job.", next_step="Give its contents as env."
            )
        unnamed = with_plans(spec).to_job(spec.name)
        job_id = await in_daemon_thread(
            paths.new_job, spec.name, max(controller.state.submitted, len(controller.state.jobs)) + 1
        )
        job = replace(unnamed, id=job_id)
        controller.ask(events.JobSubmitted(time_s=controller.clock.now(), job=job))
        return views.job(controller, controller.state.jobs[job_id])

    @routes.get("/v1/jobs/{job}")
    async def _job(job: str) -> dict[str, Any]:
        return job_lookup.shown(controller, job_lookup.find(controller, job))

    @routes.patch("/v1/jobs/{job}")
    async def _change(job: str, change: JobChange) -> dict[str, Any]:
        return job_actions.change(controller, job, sizes=change.sizes, weight=change.weight)

    @routes.post("/v1/jobs/{job}/{verb}")
    async def _verb(job: str, verb: str) -> dict[str, Any]:
        if verb in job_actions.VERBS and _is_sweep(controller, job):
            return sweep_routes.ask(controller, job, verb)
        return job_actions.ask(controller, job, verb)

    @routes.get("/v1/jobs/{job}/why")
    async def _why(job: str) -> dict[str, Any]:
        if not job_lookup.is_job(controller, job):
            explain_trial.refuse_not_started(controller.state, job)
        found = job_lookup.find(controller, job)
        story = journal.story(found.job.id, last=20)
        if isinstance(found, EndedJob):
            return explain.why_ended(found, story, controller.clock.now())
        return await explain.why(controller, found.job.id, story)

    @routes.get("/v1/jobs/{job}/curve")
    async def _curve(job: str) -> dict[str, Any]:
        item = job_lookup.find(controller, job)
        if isinstance(item, EndedJob):
            raise InputError(
                f"What was measured of {item.job.id} is not kept any more: it ended long ago.",
                next_step="Jobs of its family still profit from it.",
            )
        told = curve_report.describe(controller.state, item)
        return {"id": item.job.id, **told, "words": curve_report.words(controller.state, item)}

    @routes.get("/v1/jobs/{job}/loss")
    async def _loss(job: str) -> dict[str, Any]:
        its = job_lookup.find(controller, job).job
        points = await in_daemon_thread(controller.losses.read, its.id)
        return {"id": its.id, "mode": its.mode, "points": loss_history.describe(points)}

    @routes.get("/v1/jobs/{job}/directory")
    async def _directory(job: str) -> dict[str, str]:
        job_id = job_lookup.find(controller, job).job.id
        return {"id": job_id, "directory": str(paths.job(job_id))}

    @routes.post("/v1/forget")
    async def _forget(asked: Forgotten) -> dict[str, Any]:
        forgotten = _forget_all(controller, asked)
        return {"jobs": forgotten, "directories": [str(paths.job(job)) for job in forgotten]}

    @routes.get("/v1/story/{subject}")
    async def _story(subject: str, last: Annotated[int, Query(ge=1, le=_MOST_LINES)] = 100) -> list[dict[str, Any]]:
        return [{"time_s": time_s, "text": text} for time_s, text in journal.story(subject, last)]

    return routes


def _is_sweep(controller: Controller, name: str) -> bool:
    return not job_lookup.is_job(controller, name) and sweep_lookup.is_sweep(controller.state, name)


def _forget_all(controller: Controller, asked: Forgotten) -> list[str]:
    """Forget jobs and sweeps. Return the ids of all jobs that are forgotten, and of the sweeps."""
    state, now_s = controller.state, controller.clock.now()
    sweeps = sweep_lookup.find_ended(state, [name for name in asked.jobs if _is_sweep(controller, name)])
    jobs = job_lookup.find_ended(controller, [name for name in asked.jobs if not _is_sweep(controller, name)])
    forgotten = list(jobs)
    for sweep_id in sweeps:
        trials = state.sweeps[sweep_id].job_ids()
        forgotten += [sweep_id, *trials]
        controller.ask(events.SweepForgotten(time_s=now_s, sweep=sweep_id, jobs=trials, files=asked.files))
    if jobs:
        controller.ask(events.JobsForgotten(time_s=now_s, jobs=jobs, files=asked.files))
    return forgotten
