"""What the view of one job shows, as plain data for its templates and figures."""

from __future__ import annotations

import math
from typing import Any

from offcut.control import JobState
from offcut.model.ended_job import EndedJob
from offcut.service import curve_report, explain, job_lookup
from offcut.service.controller import Controller
from offcut.store.journal import Journal

#: At most this many resizes and lines of the story are shown.
MOST_RESIZES = 20
MOST_LINES = 40


def facts(controller: Controller, job_id: str) -> dict[str, Any]:
    """Return the job as `offcut status` shows it, and its last resizes, the newest first. InputError: no such job."""
    found = job_lookup.find(controller, job_id)
    resizes = [resize for resize in controller.metrics.resizes if resize.job == found.job.id]
    return {"job": job_lookup.shown(controller, found), "resizes": resizes[: -MOST_RESIZES - 1 : -1]}


async def why(controller: Controller, journal: Journal, job_id: str) -> dict[str, Any]:
    """Return what `offcut why` shows. InputError: no such job."""
    found = job_lookup.find(controller, job_id)
    story = journal.story(found.job.id, last=MOST_LINES)
    if isinstance(found, EndedJob):
        return explain.why_ended(found, story, controller.clock.now())
    return await explain.why(controller, found.job.id, story)


def curve(controller: Controller, job_id: str) -> dict[str, Any]:
    """Return the numbers of the figure of a job's learned scaling curve; empty lists if nothing is kept of it.

    `nodes`, `rate` (samples/s): the curve that the allocator uses; `low` and `high`: one standard deviation around it;
    `measured`: what was measured, as [nodes, rate].
    """
    found = job_lookup.find(controller, job_id)
    if not isinstance(found, JobState):
        return {"nodes": [], "rate": [], "low": [], "high": [], "measured": []}
    told = curve_report.describe(controller.state, found)
    nodes, rate = told["curve"]["nodes"], told["curve"]["rate"]
    deviation = told["deviation"] or {}
    spread = [deviation.get(size, 0.0) for size in nodes]
    return {
        "nodes": nodes,
        "rate": rate,
        "low": [value * math.exp(-d) for value, d in zip(rate, spread, strict=True)],
        "high": [value * math.exp(d) for value, d in zip(rate, spread, strict=True)],
        "measured": [[point["size"], point["rate"]] for point in told["own"]],
    }
