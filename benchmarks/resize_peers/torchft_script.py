"""The training under torchft: each process is a replica group of its own.

Gradients go through `Manager.allreduce` as one flat buffer: torchft 0.2.0's own DistributedDataParallel ends the
survivors with an AssertionError when a peer dies under gloo.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))
from torchft import Manager, Optimizer, ProcessGroupGloo

from resize_peers import training

torch.set_num_threads(1)
network = training.model()
inner = training.optimizer(network)
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
leaving: list[int] = []
signal.signal(signal.SIGTERM, lambda number, frame: leaving.append(number))


def state() -> dict[str, object]:
    return {"model": network.state_dict(), "optimizer": inner.state_dict()}


def load(saved: dict[str, object]) -> None:
    network.load_state_dict(saved["model"])
    inner.load_state_dict(saved["optimizer"])


(x, y), loss_fn = training.data().tensors, torch.nn.CrossEntropyLoss()
notes = training.Notes()
notes.ready()
manager = Manager(
    pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
    load_state_dict=load,
    state_dict=state,
    min_replica_size=1,
    timeout=timedelta(seconds=5),
    rank=0,
    world_size=1,
    store_addr="127.0.0.1",
    store_port=store.port,
    replica_id=os.environ[training.ENV_NAME],
    hostname="127.0.0.1",
)
optimizer = Optimizer(manager, inner)
parameters = list(network.parameters())
flat = torch.zeros(sum(p.numel() for p in parameters))
for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
    parameter.grad = part.view_as(parameter)
while not leaving:
    before = manager.current_step()
    optimizer.zero_grad(set_to_none=False)
    # The share is taken by an equal split: torchft leaves the data to the script.
    mine = training.share(before, 0, 3)
    loss = loss_fn(network(x[mine]), y[mine])
    training.work()
    loss.backward()
    manager.allreduce(flat).wait()
    optimizer.step()
    if manager.current_step() > before:
        notes.done(manager.current_step(), manager.num_participants())
manager.shutdown(wait=False)
os._exit(0)
