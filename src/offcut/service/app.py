"""The owner's API: the commands, over a UNIX socket that the kernel lets no other user open.

It is served nowhere else. `agent_server`, which serves the network, has no commands.
"""

from __future__ import annotations

from fastapi import FastAPI

from offcut import __version__
from offcut.cluster.base import Cluster
from offcut.service import error_responses
from offcut.service.audit import Audited, AuditLog
from offcut.service.body_limit import BodyLimit
from offcut.service.controller import Controller
from offcut.service.job_routes import job_routes
from offcut.service.limits import BODY_BYTES
from offcut.service.metric_routes import metric_routes
from offcut.service.node_routes import node_routes
from offcut.service.paths import StatePaths
from offcut.service.sweep_routes import sweep_routes
from offcut.store.journal import Journal


def build(controller: Controller, journal: Journal, cluster: Cluster, paths: StatePaths) -> FastAPI:
    """Return the API of one controller. Only its owner can connect to it."""
    app = FastAPI(title="offcut", version=__version__)
    app.add_middleware(BodyLimit, most_bytes=BODY_BYTES)
    app.add_middleware(Audited, log=AuditLog(paths.audit, paths.older_audit), role="owner")
    error_responses.install_handlers(app)
    app.include_router(job_routes(controller, journal, paths))
    app.include_router(sweep_routes(controller, journal, paths))
    app.include_router(node_routes(controller, cluster))
    app.include_router(metric_routes(controller, journal))
    return app
