"""The part of the API that shows the controller's metrics. Both applications have it: it changes nothing."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from offcut.service.controller import Controller
from offcut.store.journal import Journal

if TYPE_CHECKING:
    from offcut.service.metrics.prometheus import PrometheusMetrics


def metric_routes(controller: Controller, journal: Journal) -> APIRouter:
    """Return the routes: `/metrics` for Prometheus, `/v1/metrics` as JSON."""
    routes = APIRouter()

    made: list[PrometheusMetrics] = []

    async def metrics() -> PrometheusMetrics:
        if not made:
            # Imported at the first request, and in a thread: it takes 0.1 s, for which no event may wait.
            prometheus = await asyncio.to_thread(import_module, "offcut.service.metrics.prometheus")
            made.append(prometheus.PrometheusMetrics(controller, journal))
        return made[0]

    @routes.get("/metrics")
    async def _metrics(request: Request) -> Response:
        text, media_type = (await metrics()).encoded(request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": media_type, "Cache-Control": "no-store"})

    @routes.get("/v1/metrics")
    async def _as_json() -> list[dict[str, Any]]:
        return (await metrics()).as_json()

    return routes
