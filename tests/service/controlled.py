"""The real Controller beside a cluster that does nothing and agents that only listen."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import pytest

from offcut.control import Settings
from offcut.histogram import Histogram
from offcut.model import Allocation, Job, Sizes
from offcut.model import events as ev
from offcut.service import controller as module
from offcut.service import recovery
from offcut.service.agents import AgentConnection
from offcut.service.controller import Controller
from offcut.service.paths import StatePaths
from offcut.store import Journal
from offcut.wire import messages


class QuietCluster:
    """Records its calls, and does nothing."""

    def __init__(self, held: Collection[str] = ()) -> None:
        self.held = set(held)
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    async def observe(self) -> AsyncIterator[ev.Event]:
        await asyncio.Event().wait()
        yield ev.NodesChanged(time_s=0.0)

    async def claim(self, nodes: Collection[str], until_s: float | None) -> None:
        self.calls.append(("claim", tuple(nodes)))

    async def release(self, nodes: Collection[str]) -> None:
        self.calls.append(("release", tuple(nodes)))

    async def claimed(self) -> frozenset[str]:
        return frozenset(self.held)

    def pilot(self, node: str) -> str | None:
        return "p" if node in self.held else None

    def agent_connected(self, node: str) -> None:
        pass

    def set_demand(self, nodes: int) -> None:
        pass

    async def forgive(self, nodes: Collection[str]) -> None:
        self.calls.append(("forgive", tuple(nodes)))

    def describe(self) -> dict[str, Any]:
        return {}


class QuietSolver:
    def __init__(self, *_: Any, **__: Any) -> None:
        self.asked: list[int] = []
        self.answers: Counter[str] = Counter(proven=0)
        self.seconds = Histogram((1.0,))

    def ask(self, version: int, problem: Any) -> None:
        self.asked.append(version)

    def close(self) -> None:
        pass


class Wire:
    """An agent's side of its connection."""

    def __init__(self) -> None:
        self.heard: list[messages.ToAgent] = []

    def send_text(self, data: str) -> None:
        self.heard.append(messages.to_agent(data))

    def close(self) -> None:
        pass


class Controlled:
    """A controller in `root`; `restart` gives the next one, as after kill -9."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings | None = None) -> None:
        monkeypatch.setattr(module, "Solver", QuietSolver)
        self.paths = StatePaths(root)
        self.paths.prepare()
        self.settings = settings or Settings(profiler="oracle")
        self.cluster = QuietCluster()
        self.start()

    def start(self) -> None:
        self.journal = Journal(self.paths.journal)
        state = self.journal.load(self.settings)
        self.controller = Controller(state, self.journal, self.cluster, self.paths)
        self.controller.rendezvous.address = "127.0.0.1:1"

    def restart(self) -> None:
        self.journal.close()
        self.start()

    async def begin(self) -> None:
        """Do what a controller does before it follows the cluster."""
        self.controller.begin()
        it = self.controller
        await recovery.reconcile(it.state, it.cluster, it.agents, it.clock.now, it.handle)

    @property
    def state(self) -> Any:
        return self.controller.state

    def now_s(self) -> float:
        return self.controller.state.now_s

    def send(self, kind: type, **fields: Any) -> bool:
        fields.setdefault("time_s", self.now_s())
        return self.controller.handle(kind(**fields))

    def submit(self, job_id: str, sizes: str = "1:8", **fields: Any) -> None:
        job = Job(id=job_id, name=job_id, command=("x",), sizes=Sizes.parse(sizes), **fields)
        self.send(ev.JobSubmitted, job=job)

    def claim(self, job_id: str, *names: str) -> None:
        """Offer idle nodes, and claim them for the job."""
        self.send(ev.NodesChanged, offered=tuple(ev.Offer(name) for name in names))
        self.send(ev.Solved, version=self.state.version, allocation=Allocation(nodes={job_id: len(names)}))
        self.cluster.held |= set(names)

    def train(self, job_id: str, *names: str) -> None:
        """Let the job train on these nodes."""
        self.claim(job_id, *names)
        self.send(ev.NodesBooted, nodes=names)
        members = tuple(self.state.nodes[name].member for name in names)
        self.send(ev.WorkersReady, job=job_id, members=members)
        self.send(ev.GenerationFormed, job=job_id, generation=self.state.jobs[job_id].generation, took_s=0.1, step=1)

    def dial(self, node: str, *workers: messages.WorkerReport, **fields: Any) -> AgentConnection:
        """Let the node's agent connect."""
        connection = AgentConnection(node, "p", Wire())
        hello = messages.Hello(node=node, pilot="p", workers=workers, **fields)
        self.controller.agent_connected(connection, hello)
        return connection
