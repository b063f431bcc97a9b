"""Training scripts that loop over virtual shards, with the elastic parts; see `real_members` for how they run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from data_scripts import Chunks
from elastic_scripts import member, squared
from idiom_scripts import BATCH, Counted, data, network, numbers
from real_members import Stage
from torch import nn
from torch.utils.data import DataLoader, Dataset

import offcut.torch

SHARDS = 3


class Augmented(Dataset):
    """Samples with noise that is drawn when they are loaded."""

    def __init__(self, samples: int) -> None:
        self.samples = data(samples)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = self.samples[i]
        return x + 0.1 * torch.rand(4, dtype=torch.float64) + 0.1 * random.random(), y


def buffers(model: nn.Module) -> list[float]:
    return [value for buffer in model.buffers() for value in buffer.reshape(-1).tolist()]


def trains(
    stage: Stage,
    *,
    epochs: int = 5,
    accumulate: int = 1,
    clipped: bool = False,
    scaled: bool = False,
    workers: int = 0,
    frozen: bool = False,
) -> dict[str, Any]:
    """A network with BatchNorm and dropout on augmented samples, and a random number for each batch.

    With `frozen`, its first layer is trained from the second epoch on.
    """
    model = network(nn.BatchNorm1d(6, dtype=torch.float64), nn.Dropout(0.3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3, enabled=scaled)
    counted = Counted()
    loader: Any = DataLoader(
        Augmented(37), BATCH, shuffle=True, num_workers=workers, multiprocessing_context="fork" if workers else None
    )
    model, optimizer, loader = offcut.torch.elastic(
        model, optimizer, loader, state=[scheduler, scaler, counted], virtual_shards=SHARDS
    )
    for epoch in offcut.torch.epochs(epochs):
        model[0].requires_grad_(not frozen or epoch > 0)
        for shards in loader:
            stage.at("step", member())
            mixed = torch.rand(1).item() + random.random()
            for x, y in shards:
                loss = squared(model, mixed * x, y).mean()
                offcut.torch.report_loss(loss)
                scaler.scale(loss / accumulate).backward()
            counted.batches += 1
            if not loader.completes(accumulate):
                continue
            if clipped:
                offcut.torch.reduce_gradients()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scheduler.step()
    return {
        "parameters": numbers(model),
        "buffers": buffers(model),
        "rate": optimizer.param_groups[0]["lr"],
        "batches": counted.batches,
        "steps": member().steps,
        "loss": member().state.loss,
        "drawn": torch.rand(1).item(),
    }


def adversarial(stage: Stage, *, epochs: int = 3, updates: int = 5, shards: int = SHARDS) -> dict[str, Any]:
    """A GAN with BatchNorm and dropout; its judge has five updates for each of the maker's, with new noise."""
    maker = network(nn.BatchNorm1d(6, dtype=torch.float64))
    judge = network(nn.BatchNorm1d(6, dtype=torch.float64), nn.Dropout(0.2))
    optimizers = for_maker, for_judge = [torch.optim.Adam(net.parameters(), 0.02) for net in (maker, judge)]
    loader: Any = DataLoader(data(37), BATCH, shuffle=True)
    _, _, loader = offcut.torch.elastic([maker, judge], optimizers, loader, virtual_shards=shards)

    def made(x: torch.Tensor) -> torch.Tensor:
        return x + maker(torch.randn(len(x), 4, dtype=torch.float64))

    evaluated = []
    for _ in offcut.torch.epochs(epochs):
        for batch in loader:
            stage.at("step", member())
            for _turn in range(updates):
                for_judge.zero_grad()
                for x, _y in batch:
                    (judge(made(x).detach()).sigmoid().mean() - judge(x).sigmoid().mean()).backward()
                for_judge.step()
            if offcut.torch.steps() % 3 == 0:
                # In the middle of a step, after updates of it.
                evaluated.append(offcut.torch.evaluate(DataLoader(data(9), 2), lambda x, _y: judge(x)))
            for_maker.zero_grad()
            for x, _y in batch:
                loss = -judge(made(x)).sigmoid().mean()
                loss.backward()
                offcut.torch.report_loss(loss)
            for_maker.step()
    nets = nn.ModuleList([maker, judge])
    return {
        "parameters": numbers(nets),
        "buffers": buffers(nets),
        "steps": member().steps,
        "loss": member().state.loss,
        "evaluated": evaluated[-1],
    }


def carries_hidden_state(stage: Stage, *, accumulate: int = 1) -> dict[str, Any]:
    """A recurrent network with dropout, whose hidden state goes on from batch to batch; it is told what it logs."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(3)
    model = nn.LSTM(1, 5, num_layers=2, batch_first=True, dropout=0.3, proj_size=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    hidden: Any = offcut.torch.RowState((torch.zeros(2, BATCH, 1), torch.zeros(2, BATCH, 5)), dim=1)
    loader: Any = DataLoader(Chunks(7), BATCH)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, state=[hidden], virtual_shards=SHARDS)
    for _ in offcut.torch.epochs(3):
        hidden.reset()
        for shards in loader:
            stage.at("step", member())
            for x in shards:
                output, hidden.rows = model(x, hidden.rows)
                loss = (output[:, :-1] - x[:, 1:]).square().mean()
                offcut.torch.log(loss=loss)
                (loss / accumulate).backward()
            if loader.completes(accumulate):
                optimizer.step()
                optimizer.zero_grad()
    carried = [value for part in hidden.state_dict()["value"] for value in part.reshape(-1).tolist()]
    return {"parameters": numbers(model), "carried": carried, "steps": member().steps}


def is_plain(stage: Stage, *, elastic: bool) -> dict[str, Any]:
    """Nothing in the model depends on which samples it sees together: shards make no difference."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    loader: Any = DataLoader(data(37), BATCH, shuffle=True, generator=torch.Generator().manual_seed(4))
    if elastic:
        model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, virtual_shards=SHARDS)
    for _ in offcut.torch.epochs(3) if elastic else range(3):
        for batch in loader:
            optimizer.zero_grad()
            for x, y in batch if elastic else [batch]:
                squared(model, x, y).mean().backward()
            # A term that is of no sample.
            (0.01 * sum(p.square().sum() for p in model.parameters())).backward()
            optimizer.step()
    return {"parameters": numbers(model)}


def loses_gradients(stage: Stage) -> None:
    """Removes the gradients of the shards before, as in a loop without shards."""
    _steps_in(lambda optimizer, shards: [(optimizer.zero_grad(), loss.backward()) for loss in shards])


def steps_inside(stage: Stage) -> None:
    """Updates in the loop over the shards."""
    _steps_in(lambda optimizer, shards: [(loss.backward(), optimizer.step()) for loss in shards])


def shares_inside(stage: Stage) -> None:
    """Asks for a number of all members, of which some have fewer shards."""
    _steps_in(lambda optimizer, shards: [offcut.torch.mean(loss.item()) for loss in shards])


def leaves_early(stage: Stage) -> None:
    """Leaves the loop over the shards."""
    _steps_in(lambda optimizer, shards: next(shards).backward())


def keeps_an_old_batch(stage: Stage) -> None:
    """Loops over the shards of a batch that has passed."""
    optimizer, loader = _small()
    first = None
    for _ in offcut.torch.epochs(1):
        for shards in loader:
            first = first or shards
            list(first)
            optimizer.step()


def _steps_in(work: Callable[[torch.optim.Optimizer, Iterator[torch.Tensor]], Any]) -> None:
    optimizer, loader = _small()
    weight, _bias = optimizer.param_groups[0]["params"]
    for _ in offcut.torch.epochs(1):
        for shards in loader:
            work(optimizer, ((x @ weight.T - y).square().mean() for x, y in shards))
            optimizer.step()


def _small() -> tuple[Any, Any]:
    torch.set_default_dtype(torch.float64)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    _, optimizer, loader = offcut.torch.elastic(model, optimizer, DataLoader(data(), BATCH), virtual_shards=SHARDS)
    return optimizer, loader
