"""The addresses of the page. All links in it are relative, so that it works below any prefix of a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from importlib import resources
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from offcut.errors import InputError
from offcut.service import job_lookup, sweep_lookup
from offcut.service.controller import Controller
from offcut.service.page import job_view
from offcut.service.page.live_updates import LiveUpdates
from offcut.service.page.rendering import render
from offcut.service.page.views import Views

_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def _static_files() -> dict[str, tuple[bytes, str]]:
    """Return content and media type of each file that browsers may load, by its path below `static/`."""
    root = resources.files("offcut.service.page") / "static"
    found = {}
    for prefix, directory in (("", root), ("vendor/", root / "vendor")):
        for file in directory.iterdir():
            if (media_type := _MEDIA_TYPES.get(file.name.rpartition(".")[2])) is not None:
                found[prefix + file.name] = (file.read_bytes(), media_type)
    return found


def page_routes(controller: Controller, views: Views, updates: LiveUpdates, *, actions: bool) -> APIRouter:
    """Return the routes of the page, which only read. `actions`: whether the views have buttons."""
    routes = APIRouter(include_in_schema=False)
    static = _static_files()

    async def show(template: str, view: str, **values: Any) -> HTMLResponse:
        parts = await views.parts(view)
        return HTMLResponse(render(template, view=view, parts=parts, actions=actions, **values))

    @routes.get("/")
    async def _overview() -> HTMLResponse:
        return await show("overview.html", "overview", root="./", here="overview")

    @routes.get("/nodes")
    async def _nodes() -> HTMLResponse:
        return await show("nodes.html", "nodes", root="./", here="nodes")

    @routes.get("/jobs/{job}")
    async def _job(job: str) -> HTMLResponse:
        try:
            job_id = job_lookup.find(controller, job).job.id
        except InputError as error:
            return _missing(error)
        return await show("job.html", f"job:{job_id}", root="../", here="job", job_id=job_id)

    @routes.get("/sweeps/{name}")
    async def _sweep(name: str) -> HTMLResponse:
        try:
            sweep_id = sweep_lookup.find(controller.state, name).search.sweep.id
        except InputError as error:
            return _missing(error)
        return await show("sweep.html", f"sweep:{sweep_id}", root="../", here="sweep", sweep_id=sweep_id)

    @routes.get("/updates")
    async def _updates(view: str) -> StreamingResponse:
        stream = updates.stream(view)
        first = await anext(stream)  # an unknown view is an error, not an empty stream

        async def whole() -> AsyncIterator[bytes]:
            async with aclosing(stream):
                yield first
                async for event in stream:
                    yield event

        return StreamingResponse(whole(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    @routes.get("/data/use.json")
    async def _use() -> dict[str, Any]:
        return views.use.columns(controller.clock.now())

    @routes.get("/data/jobs/{job}/loss.json")
    async def _loss(job: str) -> dict[str, Any]:
        return await views.loss(job)

    @routes.get("/data/jobs/{job}/curve.json")
    async def _curve(job: str) -> dict[str, Any]:
        return job_view.curve(controller, job)

    @routes.get("/static/{path:path}")
    async def _static(path: str) -> Response:
        if path not in static:
            raise HTTPException(404, "There is no such file")
        content, media_type = static[path]
        return Response(content, media_type=media_type, headers={"Cache-Control": "max-age=3600"})

    return routes


def _missing(error: InputError) -> HTMLResponse:
    page = render("error.html", root="../", here="", view="", what=error.what, next_step=error.next_step)
    return HTMLResponse(page, status_code=404)
