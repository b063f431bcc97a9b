"""Training scripts as users write them, one idiom each; see `real_members` for how they run.

Each returns what must be the same on all members and in the undisturbed run: the parameters, and what else it names.
All train in double precision, where a real difference shows.
"""

from __future__ import annotations

from typing import Any

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


def schedule_per_epoch(stage: Stage, epochs: int = 3, stop_at: int | None = None) -> dict[str, Any]:
    """A schedule after each data epoch; with `stop_at`, the loop over batches is left after so many batches of it.

    The rate is also set before each loop, as warm-ups by hand are.
    """
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    counted = Counted()
    with Session(model, optimizer, data(), global_batch=BATCH) as session:
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
