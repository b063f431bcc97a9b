"""Training scripts as users write them, one idiom each; see `real_members` for how they run.

Each returns what must be the same on all members and in the undisturbed run: the parameters, and what else it names.
All train in double precision, where a real difference shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from real_members import Stage
from torch import nn
from torch.utils.data import TensorDataset

from offcut.torch import Session

SAMPLES, BATCH = 40, 8
#: Steps in a data epoch.
STEPS = SAMPLES // BATCH


def data(samples: int = SAMPLES) -> TensorDataset:
    x = torch.randn(samples, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x.sum(1, keepdim=True))


def network(*extra: nn.Module) -> nn.Sequential:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), *extra, nn.Linear(6, 1))


def loss_of(session: Session, batch: Any) -> torch.Tensor:
    return (session.model(batch.x) - batch.y).square().mean()


def numbers(model: nn.Module) -> list[float]:
    """All parameters, to be compared."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).tolist()


def plateau(stage: Stage, epochs: int = 4) -> dict[str, Any]:
    """A schedule after each data epoch that decides by `session.loss`."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    with Session(model, optimizer, data(), global_batch=BATCH) as session:
        session.register(scheduler)
        for epoch in session.epochs(epochs):
            for batch in epoch:
                stage.at("step", session)
                session.step(loss_of(session, batch))
            stage.at("epoch end", session)
            scheduler.step(session.loss)
            stage.note(session.steps, session.loss)
    return {"parameters": numbers(model), "rate": optimizer.param_groups[0]["lr"], "loss": session.loss}


def schedule_per_epoch(stage: Stage, epochs: int = 3, stop_at: int | None = None, **options: Any) -> dict[str, Any]:
    """A schedule after each data epoch; with `stop_at`, the loop over batches is left after that many batches.

    The rate is also set before each loop, as warm-ups by hand are.
    """
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    counted = Counted()
    with Session(model, optimizer, data(), global_batch=BATCH, **options) as session:
        session.register(scheduler)
        session.register(counted)
        for epoch in session.epochs(epochs):
            counted.loops += 1
            for batch in epoch:
                stage.at("step", session)
                session.step(loss_of(session, batch))
                counted.batches += 1
                if stop_at is not None and counted.batches % stop_at == 0:
                    break
            scheduler.step()
            stage.note(epoch.number, session.steps, scheduler.last_epoch)
            stage.at("epoch end", session)
    return {
        "parameters": numbers(model),
        "rate": optimizer.param_groups[0]["lr"],
        "last": scheduler.last_epoch,
        "loops": counted.loops,
        "batches": counted.batches,
        "steps": session.steps,
    }


class Counted:
    """What a script counts, to be registered."""

    def __init__(self) -> None:
        self.loops = self.batches = 0

    def state_dict(self) -> dict[str, int]:
        return {"loops": self.loops, "batches": self.batches}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.loops, self.batches = state["loops"], state["batches"]


def stops_by_loss(stage: Stage, below: float) -> dict[str, Any]:
    """Both loops are left when the loss is small enough."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    with Session(model, optimizer, data(), global_batch=BATCH) as session:
        session.register(scheduler)
        for epoch in session.epochs(20):
            for batch in epoch:
                stage.at("step", session)
                session.step(loss_of(session, batch))
                if session.loss < below:
                    break
            scheduler.step()
            if session.loss < below:
                break
        stage.at("end", session)
    return {"parameters": numbers(model), "last": scheduler.last_epoch, "loss": session.loss, "steps": session.steps}


def asks_once(stage: Stage) -> dict[str, Any]:
    """Asks for its place among the members before the first batch, and after every step."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with Session(model, optimizer, data(), global_batch=BATCH) as session:
        stage.note("first", session.once(), session.rank, session.world)
        for epoch in session.epochs(2):
            for batch in epoch:
                counts = session.step(loss_of(session, batch))
                stage.note(counts, session.once(), session.rank, session.world)
    return {"parameters": numbers(model)}


def looks_at_each_step(stage: Stage) -> dict[str, Any]:
    """Does something of its own after each step, whether it counts or not."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with Session(model, optimizer, data(), global_batch=BATCH) as session:
        for epoch in session.epochs(2):
            for batch in epoch:
                counts = session.step(loss_of(session, batch))
                stage.at("counts" if counts else "failed", session)
    return {"parameters": numbers(model)}


def unfreezes(stage: Stage, how: str, unsure: bool = False) -> dict[str, Any]:
    """Trains the head alone at first, then all of the model; then the head is frozen.

    `how` is "requires_grad" or "add_param_group". Where a script is `unsure`, members do not agree on when.
    """
    model = network()
    head = list(model[2].parameters())
    body = list(model[0].parameters())
    if how == "requires_grad":
        for p in body:
            p.requires_grad_(False)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)
    else:
        optimizer = torch.optim.AdamW(head, lr=0.05, weight_decay=0.1)
    with Session(model, optimizer, data(), global_batch=BATCH) as session:
        for epoch in session.epochs(4):
            if epoch.number == 1 and not (unsure and session.rank == 1):
                if how == "requires_grad":
                    for p in body:
                        p.requires_grad_(True)
                else:
                    optimizer.add_param_group({"params": body, "lr": 0.02})
            if epoch.number == 3:
                for p in head:
                    p.requires_grad_(False)
            for batch in epoch:
                stage.at("step", session)
                session.step(loss_of(session, batch))
    return {"parameters": numbers(model), "loss": session.loss}


def unfreezes_in_plain_torch(stage: Stage, how: str) -> dict[str, Any]:
    """The same written out."""
    model = network()
    head, body = list(model[2].parameters()), list(model[0].parameters())
    for p in body:
        p.requires_grad_(how != "requires_grad")
    optimizer = torch.optim.AdamW(model.parameters() if how == "requires_grad" else head, lr=0.05, weight_decay=0.1)
    x, y = data().tensors
    for epoch in range(4):
        if epoch == 1:
            if how == "requires_grad":
                for p in body:
                    p.requires_grad_(True)
            else:
                optimizer.add_param_group({"params": body, "lr": 0.02})
        if epoch == 3:
            for p in head:
                p.requires_grad_(False)
        for indices in torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch)).split(BATCH):
            model.zero_grad()
            loss = (model(x[indices]) - y[indices]).square().mean()
            loss.backward()
            optimizer.step()
    return {"parameters": numbers(model), "loss": loss.item()}


def channels_last(stage: Stage) -> dict[str, Any]:
    """Images in another order of memory, updated by a fused optimizer, which goes by that order."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 1))
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(SAMPLES, 3, 8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    images = TensorDataset(x, x.mean((1, 2, 3)).unsqueeze(1))
    with Session(model, optimizer, images, global_batch=BATCH) as session:
        for epoch in session.epochs(3):
            for batch in epoch:
                stage.at("step", session)
                session.step(loss_of(session, batch))
    return {"parameters": numbers(model), "loss": session.loss}


def channels_last_in_plain_torch(stage: Stage) -> dict[str, Any]:
    """The same written out."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 1))
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(SAMPLES, 3, 8, 8)
    y = x.mean((1, 2, 3)).unsqueeze(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    for epoch in range(3):
        for indices in torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch)).split(BATCH):
            optimizer.zero_grad()
            loss = (model(x[indices]) - y[indices]).square().mean()
            loss.backward()
            optimizer.step()
    return {"parameters": numbers(model), "loss": loss.item()}


def batch_norm(stage: Stage, samples: int, **options: Any) -> dict[str, Any]:
    """The last global batch of a data epoch is too small for all to have a share that BatchNorm takes."""
    model = network(nn.BatchNorm1d(6, dtype=torch.float64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shares = []
    with Session(model, optimizer, data(samples), global_batch=BATCH, **options) as session:
        for epoch in session.epochs(2):
            for batch in epoch:
                shares.append(len(batch.indices))
                session.step(loss_of(session, batch))
    stage.note(shares)
    return {"steps": session.steps, "parameters": numbers(model)}


class Best:
    """The best loss so far, as numpy gives it."""

    def __init__(self, kind: Callable[[float], Any]) -> None:
        self.kind = kind
        self.best: Any = float("inf")

    def see(self, loss: float) -> None:
        self.best = min(self.best, self.kind(loss))

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best = state["best"]


def keeps_the_best(stage: Stage, kind: str) -> dict[str, Any]:
    """Registers an object with a scalar of numpy's."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    best = Best(getattr(np, kind))
    with Session(model, optimizer, data(), global_batch=BATCH) as session:
        session.register(best)
        for epoch in session.epochs(4):
            for batch in epoch:
                stage.at("step", session)
                session.step(loss_of(session, batch))
                if session.steps > 2:
                    best.see(session.loss)
    return {"parameters": numbers(model), "best": float(best.best)}


class Box:
    """What some optimizers keep of a parameter."""


class Boxed(torch.optim.SGD):
    """Its state can go nowhere, which shows after its first step only."""

    def step(self, closure: Any = None) -> None:
        super().step()
        for settings in self.param_groups:
            for p in settings["params"]:
                self.state[p].setdefault("box", Box())


def keeps_objects(stage: Stage) -> int:
    """An optimizer that keeps objects."""
    model = network()
    with Session(model, Boxed(model.parameters(), lr=0.05), data(), global_batch=BATCH) as session:
        for epoch in session.epochs(1):
            for batch in epoch:
                session.step(loss_of(session, batch))
    return session.steps


def diverges(stage: Stage, what: str, step: int = 7) -> dict[str, Any]:
    """Rank 1 does something of its own after `step` steps."""
    model = network(nn.BatchNorm1d(6, dtype=torch.float64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    counted = Counted()
    dataset = data(SAMPLES + 1 if what == "dataset" and stage.name.startswith("n1#") else SAMPLES)
    with Session(model, optimizer, dataset, global_batch=BATCH) as session:
        session.register(counted)
        for epoch in session.epochs(4):
            for batch in epoch:
                stage.at("step", session)
                session.step(loss_of(session, batch))
                if session.steps == step and session.rank == 1:
                    with torch.no_grad():
                        match what:
                            case "parameter":
                                model[0].weight[0, 0] *= 1 + 1e-12
                            case "setting":
                                optimizer.param_groups[0]["lr"] = 0.04
                            case "optimizer":
                                optimizer.state[model[4 - 1].bias]["exp_avg"] += 1e-12
                            case "registered":
                                counted.batches += 1
                            case "buffer":
                                model[2].running_mean += 1e-12
    return {"parameters": numbers(model)}


class Centred(nn.Module):
    """Keeps a running mean that every forward puts in the place of the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(6, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


def new_buffers(stage: Stage) -> dict[str, Any]:
    """A model whose buffers are other tensors after every forward."""
    model = network(Centred())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with Session(model, optimizer, data(), global_batch=BATCH, virtual_shards=4) as session:
        for epoch in session.epochs(3):
            for batch in epoch:
                stage.at("step", session)
                session.step(loss_of(session, batch))
    return {"parameters": numbers(model), "mean": model[2].mean.tolist()}


def scales(stage: Stage) -> dict[str, Any]:
    """A GradScaler, with two virtual shards: a third member has no samples."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    with Session(model, optimizer, data(), global_batch=BATCH, virtual_shards=2, scaler=scaler) as session:
        for epoch in session.epochs(2):
            for batch in epoch:
                session.step(loss_of(session, batch))
    return {"parameters": numbers(model), "scale": scaler.get_scale()}


def scales_two(stage: Stage) -> dict[str, Any]:
    """A GradScaler, and two optimizers that are updated one after the other."""
    first, second = network(), network()
    both = nn.ModuleList([first, second])
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.05) for part in both]
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    with Session(both, optimizers, data(), global_batch=BATCH, scaler=scaler) as session:
        for epoch in session.epochs(2):
            for batch in epoch:
                session.update((first(batch.x) - batch.y).square().mean(), optimizers[0])
                session.step((second(batch.x) - first(batch.x).detach()).square().mean())
    return {"parameters": numbers(both), "scale": scaler.get_scale()}
