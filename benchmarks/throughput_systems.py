"""The training of benchmarks/throughput.py under each of the three systems: one process for each member of each."""

from __future__ import annotations

import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import throughput_links
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

import offcut.torch
from offcut.process.parent_death import die_with_parent
from offcut.wire.worker_env import (
    ENV_AGENT,
    ENV_CHECKPOINT_AGE,
    ENV_GLOO_INTERFACE,
    ENV_JOB_DIR,
    ENV_WORKER,
    worker_name,
)

#: Parameters in millions: how many square layers, and how wide.
MODELS = {1: (4, 500), 12: (12, 1000), 50: (12, 2040)}
#: Rows of each member's share of a batch. Few, because the computation of a step is set apart (`Computation`).
SHARE = 4
STEPS_PER_EPOCH = 64
#: Bytes of the message that measures a link.
PROBE_BYTES = 64 << 20
_MATRIX = 256


@dataclass(frozen=True)
class Setting:
    """What all members of all systems know.

    `multiplications` is how many products of matrices the computation of a layer is, forward and backward, where it is
    not a sleep of `layer_s`.
    """

    members: int
    million_parameters: int
    layer_s: float
    multiplications: int
    bucket_mb: int


@dataclass(frozen=True)
class Place:
    """What one member of one system knows of itself: its network namespace, and where its system's members meet."""

    rank: int
    namespace: str
    meet: str


class Computation(torch.autograd.Function):
    """What a layer computes besides its own few rows: one third of it forward, two thirds backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, turns: Turns) -> torch.Tensor:
        ctx.turns = turns
        turns.compute(1)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.turns.compute(2)
        return gradient, None


class Turns:
    """The turns of one process: it does a step when told, while the processes of the other systems wait."""

    def __init__(self, orders: Connection, setting: Setting) -> None:
        self._orders = orders
        self._setting = setting
        self._matrix = torch.full((_MATRIX, _MATRIX), 1.0 / _MATRIX)
        self._kind = ""

    def wait(self) -> str:
        """Wait for the next turn and return what it is: `sleep` or `real`, how a step computes, or `probe`."""
        self._kind = self._orders.recv()
        return self._kind

    def done(self, loss: float) -> None:
        """End the turn."""
        self._orders.send((time.monotonic(), loss))

    def compute(self, thirds: int) -> None:
        """Do that many thirds of a layer's computation."""
        if self._kind == "sleep":
            time.sleep(thirds * self._setting.layer_s / 3)
        else:
            multiply(self._matrix, thirds * self._setting.multiplications // 3)


def multiply(matrix: torch.Tensor, times: int) -> None:
    """Multiply `matrix` by itself."""
    for _ in range(times):
        torch.mm(matrix, matrix)


def calibrated(layer_s: float) -> int:
    """Return how many products of matrices take `layer_s` on a core that does nothing else: a multiple of 3."""
    torch.set_num_threads(1)
    matrix, best_s = torch.full((_MATRIX, _MATRIX), 1.0 / _MATRIX), math.inf
    for _ in range(20):
        began_s = time.perf_counter()
        multiply(matrix, 30)
        best_s = min(best_s, (time.perf_counter() - began_s) / 30)
    return max(3, 3 * round(layer_s / best_s / 3))


class Model(torch.nn.Module):
    """Square layers, each followed by its computation."""

    def __init__(self, setting: Setting, turns: Turns) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers, width = MODELS[setting.million_parameters]
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))
        self._turns = turns

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = Computation.apply(torch.relu(layer(x)), self._turns)
        return x


class Rows(Dataset[Any]):
    """The rows of all global batches of a data epoch; they are read as a whole."""

    def __init__(self, setting: Setting) -> None:
        width = MODELS[setting.million_parameters][1]
        self.x = torch.randn(STEPS_PER_EPOCH * SHARE * setting.members, width, generator=torch.manual_seed(1))

    def __len__(self) -> int:
        return len(self.x)

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        return self.x[indices]


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def loss_of(output: torch.Tensor) -> torch.Tensor:
    return (output - 1.0).square().mean()


def _plain_steps(rank: int, setting: Setting, turns: Turns, step: Callable[[torch.Tensor], float]) -> None:
    """Run the loop of a script that shares each global batch out itself."""
    rows = Rows(setting)
    while True:
        for first in range(rank * SHARE, len(rows), SHARE * setting.members):
            while turns.wait() == "probe":
                turns.done(_probe(rank))
            turns.done(step(rows.__getitems__(list(range(first, first + SHARE)))))


def _probe(rank: int) -> float:
    """Send a message from the first member to the second; return 0."""
    message = torch.zeros(PROBE_BYTES, dtype=torch.uint8)
    if rank == 0:
        dist.send(message, 1)
        dist.recv(message[:1], 1)
    elif rank == 1:
        dist.recv(message, 0)
        dist.send(message[:1], 0)
    return 0.0


def ddp(place: Place, setting: Setting, turns: Turns) -> None:
    """Train under torch's DistributedDataParallel."""
    host, _, port = place.meet.rpartition(":")
    store = dist.TCPStore(host, int(port), is_master=False)
    dist.init_process_group("gloo", store=store, rank=place.rank, world_size=setting.members)
    model = torch.nn.parallel.DistributedDataParallel(
        Model(setting, turns), bucket_cap_mb=setting.bucket_mb, gradient_as_bucket_view=True
    )
    optimizer = sgd(model)

    def step(x: torch.Tensor) -> float:
        optimizer.zero_grad()
        loss = loss_of(model(x))
        loss.backward()
        optimizer.step()
        return loss.item()

    _plain_steps(place.rank, setting, turns, step)


def torchft(place: Place, setting: Setting, turns: Turns) -> None:
    """Train under torchft's DistributedDataParallel: each member is a replica group of its own."""
    os.environ["TORCHFT_LIGHTHOUSE"] = place.meet
    import torchft as ft

    own = throughput_links.address(place.rank)
    store = dist.TCPStore(own, 0, is_master=True, wait_for_workers=False)
    manager = ft.Manager(
        pg=ft.ProcessGroupGloo(timeout=timedelta(seconds=60)),
        load_state_dict=None,
        state_dict=None,
        min_replica_size=setting.members,
        timeout=timedelta(seconds=60),
        init_sync=False,  # the members begin with equal states
        rank=0,
        world_size=1,
        store_addr=own,
        store_port=store.port,
        # They are ranked by name.
        replica_id=f"replica{place.rank:02}",
        hostname=own,
    )
    model = ft.DistributedDataParallel(
        manager, Model(setting, turns), bucket_cap_mb=setting.bucket_mb, gradient_as_bucket_view=True
    )
    optimizer = ft.Optimizer(manager, sgd(model))

    def step(x: torch.Tensor) -> float:
        before = manager.current_step()
        optimizer.zero_grad()
        loss = loss_of(model(x))
        loss.backward()
        optimizer.step()
        # A step that was not done has no time.
        return loss.item() if manager.current_step() == before + 1 else math.nan

    _plain_steps(place.rank, setting, turns, step)


def ours(place: Place, setting: Setting, turns: Turns) -> None:
    """Train as a member of a job of offcut, by a stand-in for the agent; no checkpoint falls into the measurement."""
    os.environ |= {ENV_AGENT: place.meet, ENV_WORKER: worker_name(f"n{place.rank}", 1, 0), ENV_CHECKPOINT_AGE: "1e6"}
    os.environ[ENV_JOB_DIR] = os.path.dirname(place.meet)
    model: Any = Model(setting, turns)
    optimizer: Any = sgd(model)
    loader: Any = DataLoader(Rows(setting), batch_size=SHARE * setting.members, collate_fn=lambda batch: batch)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader)
    turns.wait()
    for _ in offcut.torch.epochs(10**9):
        for x in loader:
            optimizer.zero_grad()
            loss = loss_of(model(x))
            loss.backward()
            optimizer.step()
            turns.done(math.nan if optimizer.step_was_skipped else loss.item())
            turns.wait()


SYSTEMS: dict[str, Callable[[Place, Setting, Turns], None]] = {"ddp": ddp, "torchft": torchft, "offcut": ours}


def run(system: str, place: Place, setting: Setting, orders: Connection) -> None:
    """Be one member of one system until the benchmark ends: the whole life of a process."""
    die_with_parent(os.getppid())
    throughput_links.enter(place.namespace)
    os.environ[ENV_GLOO_INTERFACE] = throughput_links.INTERFACE
    torch.set_num_threads(1)
    try:
        SYSTEMS[system](place, setting, Turns(orders, setting))
    except EOFError:
        pass  # the benchmark has ended
    except BaseException:
        print(f"throughput.py: member {place.rank} of {system}: {traceback.format_exc()}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)
