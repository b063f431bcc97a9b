"""Training scripts with the elastic parts whose data has an order or a state of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from idiom_scripts import BATCH, Counted, data, network, numbers
from real_members import Stage
from torch import nn
from torch.utils.data import DataLoader, Dataset

import offcut.torch
from offcut.torch.elastic_parts import current_training


def member() -> Any:
    """What `Stage.at` asks for the steps and the connection."""
    return current_training.current("at").training


class Chunks(Dataset):
    """A long series in columns: a batch has the next chunk of each, and continues the batch before."""

    def __init__(self, chunks: int, length: int = 3, columns: int = BATCH) -> None:
        series = torch.randn(columns, chunks * length, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        self._series, self._length, self._columns = series.cumsum(1), length, columns

    def __len__(self) -> int:
        return self._columns * (self._series.shape[1] // self._length)

    def __getitem__(self, i: int) -> torch.Tensor:
        chunk, column = divmod(i, self._columns)
        return self._series[column, chunk * self._length : (chunk + 1) * self._length, None]


class Recurrent(nn.Module):
    """Says the next number of a series."""

    def __init__(self) -> None:
        super().__init__()
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(3)
        self.lstm = nn.LSTM(1, 5, num_layers=2, batch_first=True)
        self.head = nn.Linear(5, 1)

    def forward(self, x: torch.Tensor, hidden: Any) -> tuple[torch.Tensor, Any]:
        out, hidden = self.lstm(x, hidden)
        return self.head(out), hidden


def carries_hidden_state(
    stage: Stage,
    *,
    epochs: int = 3,
    chunks: int = 7,
    accumulate: int = 1,
    shards: int | None = None,
    elastic: bool = True,
) -> dict[str, Any]:
    """Truncated backpropagation through time: the hidden state of each column goes on from batch to batch."""
    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader: Any = DataLoader(Chunks(chunks), BATCH)
    initial = (torch.zeros(2, BATCH, 5), torch.zeros(2, BATCH, 5))
    hidden: Any = offcut.torch.RowState(initial, dim=1)
    if elastic:
        model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, state=[hidden], virtual_shards=shards)
    state: Any = initial
    for _ in offcut.torch.epochs(epochs) if elastic else range(epochs):
        state = initial
        if elastic:
            hidden.reset()
        for i, batch in enumerate(loader):
            if elastic:
                stage.at("step", member())
            for x in [batch] if shards is None else batch:
                if elastic:
                    output, hidden.rows = model(x, hidden.rows)
                else:
                    output, state = model(x, tuple(part.detach() for part in state))
                ((output[:, :-1] - x[:, 1:]).square().mean() / accumulate).backward()
            if loader.completes(accumulate) if elastic else (i + 1) % accumulate == 0 or i + 1 == chunks:
                optimizer.step()
                optimizer.zero_grad()
    carried = hidden.state_dict()["value"] if elastic else [part.detach() for part in state]
    return {
        "parameters": numbers(model),
        "carried": torch.cat([part.flatten() for part in carried]).tolist(),
        "steps": member().steps if elastic else epochs * -(-chunks // accumulate),
    }


def in_phases(
    stage: Stage, *, stop_at: int = 0, evaluates: bool = False, loaders: bool = False, workers: int = 0
) -> dict[str, Any]:
    """Three epochs of the whole network, then four of its head with another rate; `stop_at` ends the first earlier."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    counted = Counted()
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
    processes: Any = {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}
    several: Any = [DataLoader(data(37), BATCH, shuffle=True, **processes)]
    if loaders:
        several.append(DataLoader(data(21), 5, shuffle=True, **processes))
    held_out = DataLoader(data(11), 3)
    model, optimizer, several = offcut.torch.elastic(model, optimizer, several, state=[counted, schedule])
    evaluated = 0.0
    for count, more in ((3, True), (4, False)):
        for epoch in offcut.torch.epochs(count, more=more):
            counted.loops += 1
            stage.note(more, epoch, offcut.torch.steps())
            for x, y in several[0 if more else -1]:
                stage.at("step" if more else "second", member())
                (model(x) - y).square().mean().backward()
                counted.batches += 1
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                if more and offcut.torch.steps() == stop_at:
                    break
            if more and offcut.torch.steps() == stop_at:
                break
        if more:
            stage.at("between", member())
            evaluated = offcut.torch.evaluate(held_out, lambda x, y: (model(x) - y).square()) if evaluates else 0.0
            for p in model[0].parameters():
                p.requires_grad_(False)
            optimizer.param_groups[0]["lr"] *= 0.5
            counted.loops += 100
    current_training.finish_at_end()
    return {
        "parameters": numbers(model),
        "rate": optimizer.param_groups[0]["lr"],
        "counted": [counted.loops, counted.batches],
        "steps": member().steps,
        "evaluated": evaluated,
    }


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def by_steps(
    stage: Stage, *, form: str = "for", steps: int = 24, accumulate: int = 1, means: bool = False
) -> dict[str, Any]:
    """A number of steps, over batches of an endless iterator, without data epochs."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
    counted = Counted()
    loader: Any = DataLoader(data(32), BATCH, shuffle=True)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, state=[schedule, counted])
    batches = endless(loader)

    def step(number: int) -> None:
        for micro in range(accumulate):
            x, y = next(batches)
            stage.at("step" if micro == 0 else "between", member())
            loss = (model(x) - y).square().mean()
            (loss / accumulate).backward()
            if means:
                offcut.torch.mean(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        counted.batches += number

    if form == "for":
        for number in offcut.torch.steps(steps):
            step(number)
    elif form == "while":
        while offcut.torch.steps() < steps:
            step(offcut.torch.steps())
    else:
        for x, y in batches:
            number = offcut.torch.steps()
            stage.at("step", member())
            (model(x) - y).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            counted.batches += number
            if offcut.torch.steps() == steps:
                break
    current_training.finish_at_end()
    return {
        "parameters": numbers(model),
        "rate": optimizer.param_groups[0]["lr"],
        "counted": counted.batches,
        "steps": member().steps,
    }


def two_judges_by_steps(stage: Stage, *, steps: int = 14) -> dict[str, Any]:
    """Several optimizers in a loop over steps; what is done in each depends on the step's number."""
    maker, judge = network(), network()
    optimizers = for_maker, for_judge = [torch.optim.Adam(net.parameters(), 0.05) for net in (maker, judge)]
    loader: Any = DataLoader(data(37), BATCH, shuffle=True)
    _, _, loader = offcut.torch.elastic([maker, judge], optimizers, loader)
    batches = endless(loader)
    for _ in offcut.torch.steps(steps):
        x, y = next(batches)
        stage.at("step", member())
        for_judge.zero_grad()
        ((judge(x) - y).square() + judge(x + maker(x).detach())).mean().backward()
        for_judge.step()
        if offcut.torch.steps() % 2:
            for_maker.zero_grad()
            (judge(x + maker(x)) - judge(x)).square().mean().backward()
            for_maker.step()
    return {"parameters": numbers(maker) + numbers(judge), "steps": member().steps}


class Readings(offcut.torch.ShardedStream):
    """A stream that draws noise for each sample, and whose shards have different lengths."""

    def __init__(self, shards: int, length: int, *, unequal: bool, noise: bool) -> None:
        self.shards = shards
        self._length, self._unequal, self._noise = length, unequal, noise
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def open(self, shard: int, position: int) -> Iterator[tuple[torch.Tensor, torch.Tensor, int]]:
        for i in range(position, self._length + (shard * 3 % 5 if self._unequal else 0)):
            number = 1000 * shard + i
            x = torch.sin(torch.arange(4.0) * (number + 7 * self._epoch + 1))
            yield x + (torch.rand(4) if self._noise else 0.0), x.sum().view(1), number


class Tally:
    """How often each sample was trained on, by data epoch; to be registered."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"seen": dict(self.seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = dict(state["seen"])


def as_dict(samples: list[Any]) -> dict[str, torch.Tensor]:
    """A collate function: what a batch is called."""
    x, y, number = zip(*samples, strict=True)
    return {"x": torch.stack(x), "y": torch.stack(y), "number": torch.tensor(number)}


def streams(
    stage: Stage,
    *,
    shards: int = 6,
    batch: int = 8,
    length: int = 6,
    epochs: int = 4,
    workers: int = 0,
    unequal: bool = True,
    drop_last: bool = False,
    virtual_shards: int | None = None,
    accumulate: int = 1,
    noise: bool = False,
) -> dict[str, Any]:
    """A loop over a stream, with batches that are dicts."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    tally = Tally()
    stream = Readings(shards, length, unequal=unequal, noise=noise)
    loader: Any = DataLoader(
        stream,
        batch,
        collate_fn=as_dict,
        drop_last=drop_last,
        num_workers=workers,
        multiprocessing_context="fork" if workers else None,
    )
    model, optimizer, loader = offcut.torch.elastic(
        model, optimizer, loader, state=[tally], virtual_shards=virtual_shards
    )
    for _ in offcut.torch.epochs(epochs):
        for fields in loader:
            stage.at("step", member())
            if virtual_shards is None:
                ((model(fields["x"]) - fields["y"]).square().mean() / accumulate).backward()
                numbers_there = [fields["number"]]
            else:
                numbers_there = []
                for shard in fields:
                    (model(shard["x"]) - shard["y"]).square().mean().backward()
                    numbers_there.append(shard["number"])
            for number in torch.cat(offcut.torch.gather(torch.cat(numbers_there))).tolist():
                tally.seen[number] = tally.seen.get(number, 0) + 1
            if loader.completes(accumulate):
                optimizer.step()
                optimizer.zero_grad()
    return {
        "parameters": numbers(model),
        "seen": [count for _, count in sorted(tally.seen.items())],
        "steps": member().steps,
        "samples": member().state.samples,
    }
