"""A worker that is told to leave before it has the state leaves at once, because it has nothing to save."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.multiprocessing
from torch.utils.data import TensorDataset

from offcut.process import unix_socket
from offcut.torch import Session
from offcut.wire.messages import GenerationMember, NewGeneration
from offcut.wire.worker_env import ENV_AGENT, ENV_JOB_DIR, ENV_WORKER, worker_name
from offcut.wire.worker_messages import Leave, MessageSocket, WorkerLeft, WorkerReady, from_worker
from rendezvous import LIMIT_S, shared_store

pytestmark = pytest.mark.xdist_group("members")

JOINER = worker_name("n1", 1, 0)
#: Longer than this test may take.
GRACE_S = 600.0


def join(agent: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {ENV_AGENT: agent, ENV_WORKER: JOINER, ENV_JOB_DIR: os.path.dirname(agent)}
    model = torch.nn.Linear(3, 1)
    data = TensorDataset(torch.randn(20, 3), torch.randn(20, 1))
    with Session(model, torch.optim.SGD(model.parameters(), 0.1), data, global_batch=4) as session:
        for _ in session.epochs(1):
            raise AssertionError("nobody else was there to train with")


def test_a_member_is_told_to_leave_while_it_waits_for_the_others(tmp_path: Path) -> None:
    """They may have come to the end of the training, say, when the generation that it was to join in was set."""
    path = tmp_path / "agent"
    listener = unix_socket.listen(path)
    process = torch.multiprocessing.get_context("fork").Process(target=join, args=(str(path),), daemon=True)
    process.start()
    heard = []
    agent = MessageSocket(listener.accept()[0], from_worker)
    for message in agent.messages():
        heard.append(message.kind)
        if isinstance(message, WorkerReady):
            generation = NewGeneration(
                job="joining",
                generation=1,
                members=tuple(GenerationMember(node=node, incarnation=1) for node in ("n0", "n1")),
                **shared_store().meeting_point("joining", 1),
                abort=False,
            )
            agent.send(generation)
            agent.send(Leave(limit_s=GRACE_S))
        if isinstance(message, WorkerLeft):
            break
    process.join(LIMIT_S)
    assert process.exitcode == 0, "it waits for members that never come"
    assert heard[-1] == "left"
    assert "broken" not in heard
