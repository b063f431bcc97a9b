"""Long steps: a member that must leave does not wait for its boundary, and the others do the step again."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch.utils.data import TensorDataset

from offcut.process import unix_socket
from offcut.torch import Session
from offcut.wire.messages import GenerationMember, NewGeneration
from offcut.wire.worker_env import ENV_AGENT, ENV_JOB_DIR, ENV_WORKER, worker_name
from offcut.wire.worker_messages import Beat, Leave, MessageSocket, WorkerHello, WorkerReady, from_worker
from rendezvous import LIMIT_S, shared_store

pytestmark = pytest.mark.xdist_group("members")

WORKERS = [worker_name(f"n{rank}", 1, 0) for rank in range(2)]
#: What the second member's steps take, s: the last one never ends.
STEPS_S = (3.0, 3.0, 600.0)
#: More than a step: the member leaves at once all the same, because its node is wanted.
GRACE_S = 60.0


class Agents:
    """Both members' agents: when a step is surely done the second one has to leave, and the first is told to go on."""

    def __init__(self, path: Path) -> None:
        self.heard: dict[str, list[str]] = {worker: [] for worker in WORKERS}
        self._connections: dict[str, MessageSocket] = {}
        self._told = False
        # Started here: two threads that ask for it at once would each start one, and the members would not meet.
        self._store = shared_store()
        self._lock = threading.Lock()
        self._listener = unix_socket.listen(path)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        for _ in WORKERS:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        agent = MessageSocket(connection, from_worker)
        worker = ""
        for message in agent.messages():
            if isinstance(message, WorkerHello):
                worker = message.worker
            self.heard[worker].append(message.kind)
            self._connections[worker] = agent
            if isinstance(message, WorkerReady):
                self._set_generation(agent, 1, (0, 1))
            if isinstance(message, Beat) and message.progress is not None and message.progress.step >= 1:
                self._take_second_away()

    def _take_second_away(self) -> None:
        with self._lock:
            if self._told:
                return
            self._told = True
        self._connections[WORKERS[1]].send(Leave(limit_s=GRACE_S, node_wanted=True))
        for agent in self._connections.values():
            self._set_generation(agent, 2, (0,))

    def _set_generation(self, agent: MessageSocket, generation: int, ranks: tuple[int, ...]) -> None:
        new = NewGeneration(
            job="long-steps",
            generation=generation,
            members=tuple(GenerationMember(node=f"n{rank}", incarnation=1) for rank in ranks),
            **self._store.meeting_point("long-steps", generation),
            abort=False,
        )
        agent.send(new)


def member(rank: int, agent: str, results: Any) -> None:
    torch.set_num_threads(1)
    os.environ |= {ENV_AGENT: agent, ENV_WORKER: WORKERS[rank], ENV_JOB_DIR: os.path.dirname(agent)}
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    data = TensorDataset(torch.randn(20, 3), torch.randn(20, 1))
    worlds = []
    with Session(model, torch.optim.SGD(model.parameters(), 0.1), data, global_batch=4) as session:
        for epoch in session.epochs(1):
            for batch in epoch:
                if rank == 1:
                    time.sleep(STEPS_S[session.steps])
                if session.step(((session.model(batch.x) - batch.y) ** 2).mean()):
                    worlds.append(session.world)
    results.put(worlds)
    results.close()
    results.join_thread()


def test_a_member_that_cannot_reach_its_boundary_in_time_leaves_by_itself(tmp_path: Path) -> None:
    context = torch.multiprocessing.get_context("fork")
    results = context.Queue()
    path = tmp_path / "agent"
    agents = Agents(path)
    members = [context.Process(target=member, args=(rank, str(path), results), daemon=True) for rank in range(2)]
    for process in members:
        process.start()
    members[1].join(LIMIT_S)
    assert members[1].exitcode == 0, "it was left to itself in a step that never ends"
    assert agents.heard[WORKERS[1]][-1] == "left"
    assert results.get(timeout=LIMIT_S) == [2, 2, 1, 1, 1], "no step was lost"
    members[0].join(LIMIT_S)
    assert "broken" in agents.heard[WORKERS[0]]
