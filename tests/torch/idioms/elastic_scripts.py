"""Training scripts that keep their own loop, with the elastic parts; see `real_members` for how they run."""

from __future__ import annotations

import random
from typing import Any

import torch
from idiom_scripts import BATCH, Counted, data, network, numbers
from real_members import Stage
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Sampler, TensorDataset, WeightedRandomSampler

import offcut.torch
from offcut.torch.elastic_parts import current_training


def member() -> Any:
    """What `Stage.at` asks for the steps and the connection."""
    return current_training.current("at").training


class Walk(Sampler):
    """Draws from Python's generator, batch by batch."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self):
        for _ in range(self.length):
            yield random.randrange(self.length)

    def __len__(self) -> int:
        return self.length


def squared(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (model(x) - y).square()


def trains(
    stage: Stage,
    *,
    epochs: int = 5,
    samples: int = 37,
    accumulate: int = 1,
    clipped: bool = False,
    scaled: bool = False,
    outlier: bool = False,
    averaged: bool = False,
    workers: int = 0,
    sampler: str = "",
    norm: bool = False,
    seeded: bool = True,
    frozen: bool = False,
) -> dict[str, Any]:
    """The loop of a plain script, with what plain scripts have in it."""
    if seeded:
        random.seed(2)
    model = network(*([nn.BatchNorm1d(6, dtype=torch.float64)] if norm else []))
    if not seeded:
        torch.seed()
    # The last batch of a data epoch has other shares than the others.
    dataset = data(samples)
    if outlier:
        dataset.tensors[1][3] = float("inf")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3, enabled=scaled)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    counted = Counted()
    drawn = {
        "": {"shuffle": True},
        "weighted": {"sampler": WeightedRandomSampler(torch.arange(1.0, samples + 1), samples)},
        "walk": {"sampler": Walk(samples)},
    }[sampler]
    loader: Any = DataLoader(
        dataset, BATCH, num_workers=workers, multiprocessing_context="fork" if workers else None, **drawn
    )
    held_out = DataLoader(data(11), 3, shuffle=True)
    state = [scheduler, scaler, counted, *([average] if averaged else [])]
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, state=state)
    offcut.torch.evaluate(held_out, lambda x, y: squared(model, x, y))
    losses = []
    for p in model[0].parameters():
        p.requires_grad_(not frozen)
    for epoch in offcut.torch.epochs(epochs):
        counted.loops += 1
        if epoch == 1:
            for p in model[0].parameters():
                p.requires_grad_(True)
        for x, y in loader:
            stage.at("step", member())
            loss = squared(model, x, y).mean()
            offcut.torch.report_loss(loss)
            scaler.scale(loss / accumulate).backward()
            counted.batches += 1
            if not loader.completes(accumulate):
                continue
            if clipped or scaled:
                offcut.torch.reduce_gradients()
            if clipped:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scheduler.step()
            average.update_parameters(model)
        stage.at("epoch end", member())
        losses.append(offcut.torch.evaluate(held_out, lambda x, y: squared(model, x, y)))
        stage.note(epoch, losses[-1])
    return {
        "parameters": numbers(model),
        "average": numbers(average.module) if averaged else [],
        "rate": optimizer.param_groups[0]["lr"],
        "scale": scaler.get_scale(),
        "batches": counted.batches,
        "loops": counted.loops,
        "steps": member().steps,
        "loss": offcut.torch.last_loss(),
        "evaluated": losses[-1],
        "drawn": torch.rand(1).item() if seeded else 0.0,
    }


def adversarial(stage: Stage, *, epochs: int = 5) -> dict[str, Any]:
    """Two models with an optimizer each; the judge has two updates for each of the maker's, and is clipped."""
    maker, judge = network(), network()
    optimizers = for_maker, for_judge = [torch.optim.Adam(net.parameters(), 0.05) for net in (maker, judge)]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(item, 0.9) for item in optimizers]
    loader: Any = DataLoader(data(37), BATCH, shuffle=True)
    _, _, loader = offcut.torch.elastic([maker, judge], optimizers, loader, state=schedules)
    for _ in offcut.torch.epochs(epochs):
        for x, y in loader:
            stage.at("step", member())
            for _turn in range(2):
                for_judge.zero_grad()
                ((judge(x) - y).square() + judge(x + maker(x).detach())).mean().backward()
                offcut.torch.reduce_gradients(for_judge)
                nn.utils.clip_grad_norm_(judge.parameters(), 0.5)
                for_judge.step()
            if offcut.torch.steps() % 2:
                for_maker.zero_grad()
                (judge(x + maker(x)) - judge(x)).square().mean().backward()
                for_maker.step()
            for schedule in schedules:
                schedule.step()
    rates = [item.param_groups[0]["lr"] for item in optimizers]
    return {"parameters": numbers(maker) + numbers(judge), "rates": rates, "steps": member().steps}


def counts_tokens(stage: Stage, *, accumulate: int = 1) -> dict[str, Any]:
    """A loss that is the mean over tokens, of which samples have different numbers."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = data(37).tensors
    tokens = torch.arange(37) % 5
    loader: Any = DataLoader(TensorDataset(x, y, tokens), BATCH, shuffle=True)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader)
    losses = []
    for _ in offcut.torch.epochs(4):
        for x, y, n in loader:
            stage.at("step", member())
            offcut.torch.weight_by(n.sum())
            loss = ((model(x) - y).square().squeeze(1) * n).sum() / n.sum().clamp(min=1)
            (loss / accumulate).backward()
            losses.append(offcut.torch.mean(loss.item()))
            if loader.completes(accumulate):
                optimizer.step()
                optimizer.zero_grad()
    return {"parameters": numbers(model), "steps": member().steps, "loss": losses[-1]}


def stops_early(stage: Stage, *, below: float = 0.5) -> dict[str, Any]:
    """Both loops are left by `break`, by a number that all members share."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, DataLoader(data(), BATCH, shuffle=True))
    last = 0.0
    for _ in offcut.torch.epochs(50):
        for x, y in loader:
            stage.at("step", member())
            loss = squared(model, x, y).mean()
            last = offcut.torch.mean(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if last < below:
                break
        if last < below:
            break
    current_training.finish_at_end()  # as at the end of a process
    return {"parameters": numbers(model), "steps": member().steps}


def shares_numbers(stage: Stage) -> list[Any]:
    """Asks for sums, means and all members' numbers in each step."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    dataset = TensorDataset(torch.arange(10.0, dtype=torch.float64))
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, DataLoader(dataset, 4))
    told = []
    for _ in offcut.torch.epochs(1):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x.unsqueeze(1).expand(-1, 4)).mean().backward()
            total, count = offcut.torch.sum(x.sum()), offcut.torch.sum(len(x))
            gathered = torch.cat(offcut.torch.gather(x)).sort().values.tolist()
            mean = offcut.torch.mean(x.mean())
            optimizer.step()
            if not optimizer.step_was_skipped:
                told.append((total.item(), count, mean.item(), gathered))
    return told


def counts_turns(stage: Stage) -> None:
    """Adds up gradients by its own count of turns, which is another one in a worker that joins."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, DataLoader(data(40), BATCH // 2))
    turns = 1 if stage.name.startswith("n1#") else 0
    for _ in offcut.torch.epochs(2):
        for x, y in loader:
            stage.at("step", member())
            squared(model, x, y).mean().backward()
            turns += 1
            if turns % 2 == 0:
                optimizer.step()


def clips_unreduced(stage: Stage) -> None:
    """Clips what is not summed over the members."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, DataLoader(data(), BATCH))
    for _ in offcut.torch.epochs(1):
        for x, y in loader:
            squared(model, x, y).mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
