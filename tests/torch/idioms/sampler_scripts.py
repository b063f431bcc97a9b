"""Training scripts with samplers of their own, or without a dataset; see `real_members` for how they run."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from idiom_scripts import BATCH, network, numbers
from real_members import Stage
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler, TensorDataset, WeightedRandomSampler

import offcut.torch
from offcut.torch.elastic_parts import current_training

SAMPLES = 38


def member() -> Any:
    """What `Stage.at` asks for the steps and the connection."""
    return current_training.current("at").training


class Sentences(Dataset):
    """Samples of different lengths, as dicts."""

    def __init__(self) -> None:
        self.lengths = [1 + i * 7 % 6 for i in range(SAMPLES)]
        drawn = torch.Generator().manual_seed(1)
        self._rows = [torch.randn(length, 4, generator=drawn, dtype=torch.float64) for length in self.lengths]

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"x": self._rows[i], "y": self._rows[i].sum().view(1)}


class ByLength(Sampler):
    """Batches of sentences of one length: of six, or of what is left of a length; in a random order."""

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = lengths

    def __iter__(self) -> Iterator[list[int]]:
        batches = []
        for length in sorted(set(self._lengths)):
            there = [i for i, own in enumerate(self._lengths) if own == length]
            batches += [there[i : i + 6] for i in range(0, len(there), 6)]
        yield from (batches[i] for i in torch.randperm(len(batches)).tolist())

    def __len__(self) -> int:
        return sum(-(-self._lengths.count(length) // 6) for length in set(self._lengths))


class Curriculum(Sampler):
    """Short sentences first: how long they may be grows with the data epoch, and with the batches of it."""

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = lengths
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        for number in range(5):
            there = [i for i, length in enumerate(self._lengths) if length <= 1 + self.epoch + number]
            yield [there[i] for i in torch.randint(len(there), (BATCH,)).tolist()]

    def __len__(self) -> int:
        return 5


class Averaged(nn.Module):
    """The mean of what a network says of each word."""

    def __init__(self) -> None:
        super().__init__()
        self.words = network()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (self.words(x).mean(1) - y).square().mean()


def samples_by(stage: Stage, *, kind: str, epochs: int = 5, workers: int = 0) -> dict[str, Any]:
    """A sampler of the script's own, batches that are dicts, and a schedule over all steps."""
    dataset = Sentences()
    curriculum = Curriculum(dataset.lengths)
    own: dict[str, Any] = {
        "buckets": {"batch_sampler": ByLength(dataset.lengths)},
        "curriculum": {"batch_sampler": curriculum},
        "in order": {"batch_size": BATCH},
        "in order, whole batches": {"batch_size": BATCH, "drop_last": True},
        "weighted": {
            "sampler": WeightedRandomSampler(
                torch.tensor(dataset.lengths, dtype=torch.float64), SAMPLES, generator=torch.Generator().manual_seed(5)
            ),
            "batch_size": BATCH,
        },
    }[kind]
    processes = {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}
    # Sentences of one length are whole.
    collate = None if kind == "buckets" else _first_words
    loader: Any = DataLoader(dataset, collate_fn=collate, **own, **processes)
    model = Averaged()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=epochs * len(loader))
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, state=[schedule])
    for epoch in offcut.torch.epochs(epochs):
        curriculum.set_epoch(epoch)
        for batch in loader:
            stage.at("step", member())
            loss = model(**batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return {"parameters": numbers(model), "rate": optimizer.param_groups[0]["lr"], "steps": member().steps}


def _first_words(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {"x": torch.stack([each["x"][:1] for each in samples]), "y": torch.stack([each["y"] for each in samples])}


def changes_the_sampler_inside(stage: Stage) -> None:
    """Makes the curriculum harder in the middle of a data epoch."""
    dataset = Sentences()
    curriculum = Curriculum(dataset.lengths)
    model = Averaged()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader: Any = DataLoader(dataset, batch_sampler=curriculum, collate_fn=_first_words)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader)
    for _ in offcut.torch.epochs(3):
        for batch in loader:
            curriculum.set_epoch(offcut.torch.steps() // 3)
            model(**batch).backward()
            optimizer.step()


ENVIRONMENTS = 10


def play(model: nn.Module, environments: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what an agent has seen, done, and got in each environment; the random numbers are the environment's."""
    seen, done, got = [], [], []
    for number in environments.tolist():
        drawn = torch.Generator().manual_seed(1000 * number + step)
        place = torch.randn(4, generator=drawn)
        for _ in range(3):
            with torch.no_grad():
                action = model(place) + 0.3 * torch.randn(1, generator=drawn)
            seen.append(place)
            done.append(action)
            place = 0.9 * place + action
            got.append(-place.square().sum().view(1))
    shape = len(environments), 3, -1
    return torch.stack(seen).view(shape), torch.stack(done).view(shape), torch.stack(got).view(shape)


def plays(stage: Stage, *, iterations: int = 16, updates: int = 3) -> dict[str, Any]:
    """Reinforcement learning: the samples are environments, and each batch of episodes is used for several updates."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader: Any = DataLoader(TensorDataset(torch.arange(ENVIRONMENTS)), ENVIRONMENTS)
    model, (optimizer,), loader = offcut.torch.elastic(model, [optimizer], loader)
    for _ in offcut.torch.epochs(iterations):
        for (environments,) in loader:
            stage.at("step", member())
            seen, done, got = play(model, environments, offcut.torch.steps())
            advantage = got.flip(1).cumsum(1).flip(1)
            before = model(seen).detach()
            for _update in range(updates):
                ratio = (-(model(seen) - done).square() + (before - done).square()).exp()
                loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                optimizer.zero_grad()
                loss.backward()
                offcut.torch.reduce_gradients(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
    return {"parameters": numbers(model), "steps": member().steps}


def finds_its_rate(stage: Stage) -> dict[str, Any]:
    """Tries learning rates on the plain loader, puts everything back, and trains with the best one."""
    model = network()
    dataset = TensorDataset(*(torch.randn(32, n, generator=torch.Generator().manual_seed(n)) for n in (4, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    loader: Any = DataLoader(dataset, BATCH, shuffle=True)
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    tried = {}
    for rate in (0.001, 0.01, 0.1):
        model.load_state_dict(before[0])
        optimizer.load_state_dict(before[1])
        optimizer.param_groups[0]["lr"] = rate
        for x, y in loader:
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        tried[loss.item()] = rate
    model.load_state_dict(before[0])
    optimizer.load_state_dict(before[1])
    optimizer.param_groups[0]["lr"] = tried[min(tried)]
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader)
    for _ in offcut.torch.epochs(5):
        for x, y in loader:
            stage.at("step", member())
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
    return {"parameters": numbers(model), "rate": optimizer.param_groups[0]["lr"], "steps": member().steps}
