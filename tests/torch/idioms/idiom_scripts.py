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
