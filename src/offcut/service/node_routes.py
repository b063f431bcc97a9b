"""The part of the API that is about nodes and the controller as a whole."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from offcut.cluster.base import Cluster
from offcut.cluster.local.adapter import LocalCluster
from offcut.errors import InputError
from offcut.model import events
from offcut.service import views
from offcut.service.controller import Controller
from offcut.wire.fields import NodeName


class NodeNames(BaseModel):
    model_config = ConfigDict(extra="forbid")
    nodes: list[NodeName] = Field([], max_length=10_000)


def node_routes(controller: Controller, cluster: Cluster) -> APIRouter:
    """Return the routes: status, releasing nodes, and playing the local cluster's queue."""
    routes = APIRouter()

    def local() -> LocalCluster:
        if not isinstance(cluster, LocalCluster):
            raise InputError("Only the local cluster's queue can be played by hand.")
        return cluster

    @routes.get("/v1/status")
    async def _status(ended: Annotated[int | None, Query(ge=0)] = None) -> dict[str, Any]:
        return views.status(controller, ended)

    @routes.get("/v1/statistics")
    async def _statistics() -> dict[str, Any]:
        return {
            "cluster": await cluster.statistics(),
            "resizes": [asdict(resize) for resize in controller.metrics.resizes],
        }

    @routes.post("/v1/nodes/want")
    async def _want(names: NodeNames) -> dict[str, Any]:
        await local().want(names.nodes)
        return {"nodes": names.nodes}

    @routes.post("/v1/nodes/offer")
    async def _offer(names: NodeNames) -> dict[str, Any]:
        await local().offer(names.nodes)
        return {"nodes": names.nodes}

    @routes.post("/v1/begin")
    async def _begin() -> dict[str, Any]:
        """Start the clock of the local cluster's windows."""
        local().begin()
        return {}

    @routes.post("/v1/release")
    async def _release(names: NodeNames) -> dict[str, Any]:
        controller.ask(events.ReleaseAsked(time_s=controller.clock.now(), nodes=tuple(names.nodes)))
        return views.status(controller)

    @routes.post("/v1/claim")
    async def _claim() -> dict[str, Any]:
        controller.ask(events.ClaimingResumed(time_s=controller.clock.now()))
        return views.status(controller)

    @routes.post("/v1/forgive")
    async def _forgive(names: NodeNames) -> dict[str, Any]:
        controller.ask(events.NodesForgiven(time_s=controller.clock.now(), nodes=tuple(names.nodes)))
        await cluster.forgive(names.nodes)
        return views.status(controller)

    return routes
