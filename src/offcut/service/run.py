"""A controller, its API and its cluster together, until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
import uvicorn
from fastapi import FastAPI

from offcut.cluster.base import Cluster
from offcut.cluster.local.adapter import LocalCluster
from offcut.control import Settings
from offcut.errors import OffcutError, ServiceError
from offcut.model import events
from offcut.process import clocks, unix_socket
from offcut.process.daemon_thread import in_daemon_thread
from offcut.service import app as api
from offcut.service import clusters, lease_watch
from offcut.service.agent_protocol import AgentProtocol
from offcut.service.agent_server import AgentServer
from offcut.service.agent_socket import AgentSocket
from offcut.service.controller import Controller
from offcut.service.lease import Lease, LeaseLost
from offcut.service.limits import (
    NetworkLimits,
    network_limits,
    owner_connections,
    raise_descriptor_limit,
)
from offcut.service.listen import endpoint
from offcut.service.objective_files import ObjectiveFiles
from offcut.service.owner_connection import OwnerConnection
from offcut.service.page.server import PageListener
from offcut.service.paths import StatePaths
from offcut.service.searcher.searcher import Searcher
from offcut.service.searcher.user_schedulers import UserSchedulers
from offcut.service.shutdown import END_LIMIT_S, HURRIED, HURRY_LIMIT_S, Endings
from offcut.store.journal import Journal
from offcut.wire.credentials import Credentials
from offcut.wire.tls import Certificate

_log = structlog.get_logger()

#: How long members may take to leave when the controller is stopped.
_STOP_PATIENCE_S = 5.0
#: How long the batch system may take to release what we hold: Slurm runs epilogs.
_CLOSE_LIMIT_S = 60.0
#: How long giving up the lease of the shared directory may take.
_SHARE_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    state_dir: Path
    #: What agents see, on a file system that they share; None: the state directory.
    share: Path | None = None
    settings: Settings
    site: clusters.Site
    #: A baseline's name or `file.py:function`; None: the exact optimum.
    policy: str | None = None
    #: HOST[:PORT] that agents dial over a network, behind TLS; None: loopback.
    listen: str | None = None
    #: [HOST:]PORT at which the page is served, behind TLS where a host is named; None: a free port of loopback; `off`:
    #: it is not served.
    page: str | None = None
    #: Whether the page may change something.
    page_actions: bool = False
    #: Start the windows' clock at once; a demo starts it when everything is ready.
    begin: bool = True
    #: The workers' umask. Files of the controller and its agents are private in any case.
    worker_umask: int | None = None
    #: Called once commands and agents are answered.
    ready: Callable[[], None] = lambda: None


def run(config: ServiceConfig) -> None:
    """Run a controller until it is told to stop. Raises OffcutError if it cannot start, or cannot go on."""

    async def with_endings() -> Endings:
        endings = Endings()
        await serve(config, endings)
        return endings

    try:
        # The guard stays armed while threads that still run are waited for.
        asyncio.run(with_endings()).withdraw()
    except OSError as error:
        where = error.filename or config.state_dir
        raise ServiceError(
            f"The controller cannot go on: {where}: {error.strerror or error}.",
            next_step="Is the disk full, or read-only? Jobs continue when the controller is started again.",
        ) from error


async def serve(config: ServiceConfig, endings: Endings) -> None:
    """Run until `endings` are asked for, then let members leave and release every node.

    Raises OffcutError where it cannot start, or cannot go on.
    """
    async with AsyncExitStack() as opened:
        await _serve(config, endings, opened)


async def _serve(config: ServiceConfig, endings: Endings, opened: AsyncExitStack) -> None:
    """See `serve`. What must be closed, also where the controller cannot start, is entered in `opened`."""
    paths = StatePaths(config.state_dir, config.share)
    paths.prepare()
    agents = endpoint(config.listen, paths.certificates)
    tcp = opened.enter_context(agents.bind())
    page = PageListener.bound(config.page, paths, opened)
    opened.enter_context(paths.take_lock())
    lease = Lease(paths.lease)
    await in_daemon_thread(lease.acquire)
    opened.push_async_callback(_drop, lease, endings)
    credentials = Credentials.load(paths.agent_key, paths.credentials)
    endings.listen()

    journal = Journal(paths.journal)
    settings = clusters.settings_for(config.site, config.settings)
    state = journal.load(settings)
    cluster = await clusters.connect(config.site, paths, credentials, settings)
    controller = Controller(
        state, journal, cluster, paths, config.policy, host=agents.host, worker_umask=config.worker_umask
    )
    controller.begin()

    # Raised after the cluster's own processes were started, so that workers have the limit that their user set.
    descriptors = raise_descriptor_limit()
    owner = _OwnerServer.of(api.build(controller, journal, cluster, paths), owner_connections(descriptors))
    network = _network(controller, tcp, credentials, agents.certificate, network_limits(descriptors))
    controller.tasks.need("owner's API", partial(owner.serve, sockets=[unix_socket.listen(paths.socket)]))
    network.start()
    controller.tasks.need("cluster", controller.run)
    controller.tasks.need("lease", lease.keep)
    _keep_beside(controller, journal, paths, lease, partial(page.serve, actions=config.page_actions), opened)
    asked = asyncio.create_task(endings.asked.wait())
    taken_over = False
    try:
        certificate = agents.certificate.public.read_text() if agents.certificate else None
        await in_daemon_thread(paths.publish_address, agents.url(tcp.getsockname()[1]), certificate)
        if config.begin and isinstance(cluster, LocalCluster):
            cluster.begin()
        _log.info("ready", state_dir=str(paths.root))
        config.ready()
        failures = (controller.unwritable, controller.tasks.fatal)
        await asyncio.wait((asked, *failures), return_when=asyncio.FIRST_COMPLETED)
        for failure in failures:
            if failure.done():
                taken_over = isinstance(failure.result(), LeaseLost)
                raise failure.result()
        await endings.step(_wind_down(controller))
    finally:
        asked.cancel()
        not_closed = await _end(controller, owner, network, endings, paths, taken_over=taken_over)
    if endings.hurried.is_set():
        raise ServiceError(HURRIED)
    if not_closed is not None:
        raise not_closed


def _follow_sweeps(controller: Controller, paths: StatePaths, opened: AsyncExitStack) -> None:
    """Read what trials report, suggest what they try, and ask users' schedulers."""
    now, tasks = controller.clock.now, controller.tasks
    tasks.keep("objectives of trials", ObjectiveFiles(controller.state, paths.job, now, controller.handle).keep)
    searcher = Searcher(controller.state, paths.studies, now, controller.handle)
    tasks.keep("searcher", searcher.keep)
    tasks.keep("studies", searcher.keep_studies)
    schedulers = UserSchedulers(controller.state, now, controller.handle)
    tasks.keep("schedulers of users", schedulers.keep)
    opened.callback(searcher.close)
    opened.callback(schedulers.close)


def _keep_beside(
    controller: Controller,
    journal: Journal,
    paths: StatePaths,
    lease: Lease,
    serve_page: Callable[[Controller, Journal, StatePaths], None],
    opened: AsyncExitStack,
) -> None:
    """Start what the controller can go on without: sweeps, the page, the watch over the lease."""
    _follow_sweeps(controller, paths, opened)
    serve_page(controller, journal, paths)
    controller.tasks.keep("lease watch", partial(lease_watch.watch, lease, controller))


async def _drop(lease: Lease, endings: Endings) -> None:
    await endings.step(in_daemon_thread(lease.drop), _SHARE_LIMIT_S)


async def _end(
    controller: Controller,
    owner: _OwnerServer,
    network: AgentServer,
    endings: Endings,
    paths: StatePaths,
    *,
    taken_over: bool,
) -> OffcutError | None:
    """End everything, each step within its limit. Return what went wrong with the batch system.

    What the batch system holds stays held if another controller has taken over, and so does the address.
    """
    endings.surely_within(HURRY_LIMIT_S if endings.hurried.is_set() else END_LIMIT_S)
    controller.closing = controller.tasks.closing = True
    owner.should_exit = True
    with suppress(OffcutError, OSError, ValueError):
        if (counted := await endings.step(controller.cluster.statistics())) is not None:
            paths.statistics.write_text(json.dumps(counted))
    not_closed = None
    if not taken_over or isinstance(controller.cluster, LocalCluster):
        not_closed = await _close_cluster(controller.cluster, endings)
    with suppress(OSError):
        controller.rendezvous.end()
    network.close()
    await controller.close()
    with suppress(OSError):
        paths.socket.unlink(missing_ok=True)
    if not taken_over:
        with suppress(OSError):
            await endings.step(in_daemon_thread(paths.address.unlink, True), _SHARE_LIMIT_S)
    return not_closed


async def _close_cluster(cluster: Cluster, endings: Endings) -> OffcutError | None:
    """Release every node and close the cluster. Return what went wrong."""
    try:
        await endings.step(cluster.close(), _CLOSE_LIMIT_S)
    except OffcutError as error:
        _log.error("cluster_not_closed", error=str(error))
        return error
    except OSError as error:
        return ServiceError(f"The batch system could not be told that the controller ends: {error.strerror}.")
    return None


async def _wind_down(controller: Controller) -> None:
    """Release every node in good order: members save their state at their step boundary."""
    controller.handle(events.ControllerStopping(time_s=controller.clock.now()))
    give_up_s = clocks.steady_s() + _STOP_PATIENCE_S
    while any(job.state_holders for job in controller.state.jobs.values()) and clocks.steady_s() < give_up_s:
        await asyncio.sleep(0.02)


def _network(
    controller: Controller,
    listener: socket.socket,
    credentials: Credentials,
    certificate: Certificate | None,
    limits: NetworkLimits,
) -> AgentServer:
    """Return the listener for agents, behind TLS if there is a certificate. It serves no commands."""

    def admit(agent: AgentSocket, authorization: str) -> AgentProtocol[AgentSocket] | None:
        scheme, _, given = authorization.partition(" ")
        identity = credentials.check(given) if scheme == "Bearer" else None
        return None if identity is None else AgentProtocol(controller, identity, agent, server.greeted)

    server = AgentServer(listener, limits, admit, certificate.server_context() if certificate else None)
    return server


class _OwnerServer(uvicorn.Server):
    """Serves the owner's API. Signals are left to `Endings`."""

    @classmethod
    def of(cls, app: FastAPI, connections: int) -> _OwnerServer:
        return cls(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                http=OwnerConnection,
                ws="none",
                limit_concurrency=connections,
            )
        )

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()
