"""What the page changes, where the controller was started with `--page-actions`.

A request has to have the header that htmx sends: a page of another site cannot set it without being allowed to, and it
is not. The cookie is not sent by such a page either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from offcut.errors import InputError
from offcut.model import events
from offcut.service import job_actions, sweep_routes
from offcut.service.controller import Controller
from offcut.service.page.rendering import render
from offcut.wire.jobspec import WEIGHT_RANGE


def action_routes(controller: Controller) -> APIRouter:
    """Return the routes that pause, resume, cancel and change jobs, end sweeps, and release nodes."""
    routes = APIRouter(include_in_schema=False)

    def answer(request: Request, act: Callable[[], str]) -> HTMLResponse:
        """Return what was done as a piece of HTML, or why it was not."""
        try:
            if request.headers.get("hx-request") != "true":
                raise InputError("This address is for the page's own buttons.")
            done = act()
        except InputError as error:
            return HTMLResponse(render("_refused_action.html", what=error.what, next_step=error.next_step), 400)
        return HTMLResponse(render("_done.html", done=done))

    @routes.post("/jobs/{job}/change")
    async def _change(request: Request, job: str) -> HTMLResponse:
        form = await _form(request)

        def act() -> str:
            shown = job_actions.change(controller, job, sizes=form.get("sizes") or None, weight=_weight(form))
            return f"{shown['id']} may have {shown['sizes']} nodes, weight {shown['weight']:g}."

        return answer(request, act)

    @routes.post("/jobs/{job}/{verb}")
    async def _job(request: Request, job: str, verb: str) -> HTMLResponse:
        return answer(request, lambda: _state_of(job_actions.ask(controller, job, verb)))

    @routes.post("/sweeps/{name}/{verb}")
    async def _sweep(request: Request, name: str, verb: str) -> HTMLResponse:
        return answer(request, lambda: _state_of(sweep_routes.ask(controller, name, verb)))

    @routes.post("/nodes/release")
    async def _release(request: Request) -> HTMLResponse:
        def act() -> str:
            controller.ask(events.ReleaseAsked(time_s=controller.clock.now(), nodes=()))
            return "All nodes are released, and none is claimed until that is undone."

        return answer(request, act)

    @routes.post("/nodes/claim")
    async def _claim(request: Request) -> HTMLResponse:
        def act() -> str:
            controller.ask(events.ClaimingResumed(time_s=controller.clock.now()))
            return "Idle nodes are claimed again."

        return answer(request, act)

    return routes


def _state_of(shown: dict[str, Any]) -> str:
    """Return a sentence about a job or sweep that was asked for something."""
    return f"{shown['id']} is {shown['state']} now."


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form; of several of a name the last."""
    fields: dict[str, Any] = parse_qs((await request.body()).decode(errors="replace"))
    return {name: values[-1].strip() for name, values in fields.items()}


def _weight(form: dict[str, str]) -> float | None:
    """Return the weight in the form, None without one. InputError: it is not one."""
    text = form.get("weight", "")
    if not text:
        return None
    try:
        weight = float(text)
    except ValueError:
        weight = float("nan")
    low, high = WEIGHT_RANGE
    if not low <= weight <= high:
        raise InputError(f"weight: '{text}' is not a number from {low:g} to {high:g}.")
    return weight
