"""A script with the elastic parts, run by itself, is plain PyTorch bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    Sampler,
    TensorDataset,
    WeightedRandomSampler,
)

import offcut.torch
from offcut.errors import InputError
from offcut.torch.elastic_parts import current_training
from offcut.wire.worker_env import ENV_GOAL

SAMPLES, BATCH = 50, 8


class Noisy(Dataset):
    """Samples with random numbers of all three kinds."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = torch.rand(4) + random.random() + float(np.random.rand())
        return i / SAMPLES + noise, torch.tensor([float(i)]) / SAMPLES


class Drawing(Sampler):
    """Draws from Python's generator while the training goes on."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(SAMPLES):
            yield random.randrange(SAMPLES)

    def __len__(self) -> int:
        return SAMPLES


def plain_data() -> TensorDataset:
    x = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x.sum(1, keepdim=True))


LOADERS: dict[str, Callable[[], DataLoader[Any]]] = {
    "shuffled": lambda: DataLoader(plain_data(), BATCH, shuffle=True),
    "in order, without the last": lambda: DataLoader(plain_data(), BATCH, drop_last=True),
    "own generator": lambda: DataLoader(plain_data(), BATCH, shuffle=True, generator=torch.Generator().manual_seed(5)),
    "weighted": lambda: DataLoader(
        plain_data(), BATCH, sampler=WeightedRandomSampler(torch.arange(1.0, SAMPLES + 1), 30)
    ),
    "draws on the way": lambda: DataLoader(plain_data(), BATCH, sampler=Drawing()),
    "batch sampler": lambda: DataLoader(plain_data(), batch_sampler=BatchSampler(Drawing(), 7, True)),
    "augmented": lambda: DataLoader(Noisy(), BATCH, shuffle=True),
    "augmented by processes": lambda: DataLoader(Noisy(), BATCH, shuffle=True, num_workers=2),
    "processes that stay": lambda: DataLoader(
        plain_data(), BATCH, shuffle=True, num_workers=1, persistent_workers=True
    ),
}


def trained(elastic: bool, loader: DataLoader[Any], *, accumulate: int = 1, clip: bool = False) -> list[torch.Tensor]:
    """Return what three epochs make of a network: all of its state, after each."""
    torch.manual_seed(3)
    random.seed(4)
    np.random.seed(5)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Tanh(), nn.Linear(6, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    if elastic:
        model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, state=[scheduler])
    seen = []
    for epoch in offcut.torch.epochs(3) if elastic else range(3):
        for i, (x, y) in enumerate(loader):
            loss = (model(x) - y).square().mean() / accumulate
            loss.backward()
            if (i + 1) % accumulate == 0 or i + 1 == len(loader):
                if clip:
                    if elastic:
                        offcut.torch.reduce_gradients()
                    seen.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()
        seen += [value.clone() for value in model.state_dict().values()]
        seen += [torch.tensor([epoch, optimizer.param_groups[0]["lr"]]), loss.detach(), torch.rand(2)]
    return seen


def same_bits(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return len(one) == len(two) and all(map(torch.equal, one, two))


@pytest.mark.parametrize("name", LOADERS)
def test_the_training_is_the_plain_one(name: str) -> None:
    assert same_bits(trained(True, LOADERS[name]()), trained(False, LOADERS[name]()))


@pytest.mark.parametrize("options", [{"accumulate": 3}, {"clip": True}, {"accumulate": 2, "clip": True}])
def test_accumulating_and_clipping_are_the_plain_ones(options: dict[str, Any]) -> None:
    loader = LOADERS["shuffled"]
    assert same_bits(trained(True, loader(), **options), trained(False, loader(), **options))


def adversarial(elastic: bool) -> list[torch.Tensor]:
    """Return what a small GAN learns; its judge has two updates for each of the maker's."""
    torch.manual_seed(3)
    maker, judge = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4)), nn.Linear(4, 1)
    optimizers = for_maker, for_judge = [torch.optim.Adam(net.parameters(), 0.05) for net in (maker, judge)]
    loader: Any = DataLoader(plain_data(), BATCH, shuffle=True)
    if elastic:
        (maker, judge), optimizers, loader = offcut.torch.elastic((maker, judge), optimizers, loader)
    for _ in offcut.torch.epochs(3) if elastic else range(3):
        for x, _y in loader:
            for _turn in range(2):
                for_judge.zero_grad()
                (judge(maker(torch.rand(len(x), 2)).detach()).sigmoid().mean() - judge(x).sigmoid().mean()).backward()
                if elastic:
                    offcut.torch.reduce_gradients(for_judge)
                nn.utils.clip_grad_norm_(judge.parameters(), 0.1)
                for_judge.step()
            for_maker.zero_grad()
            (-judge(maker(torch.rand(len(x), 2))).sigmoid().mean()).backward()
            for_maker.step()
    return [value.clone() for net in (maker, judge) for value in net.state_dict().values()]


def test_several_optimizers_are_the_plain_ones() -> None:
    assert same_bits(adversarial(True), adversarial(False))


class Stream(offcut.torch.ShardedStream):
    """Samples with random numbers, in shards of one length."""

    shards = 4

    def open(self, shard: int, position: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for i in range(position, 9):
            yield torch.rand(4) + shard * i / 40, torch.tensor([float(i)])


STREAMS = {
    "stream": lambda: DataLoader(Stream(), BATCH),
    "stream, batches that begin at any shard": lambda: DataLoader(Stream(), 7),
    "stream without the last batch": lambda: DataLoader(Stream(), BATCH, drop_last=True),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_the_plain_one(name: str) -> None:
    if "without" in name:
        assert same_bits(trained(True, STREAMS[name]()), trained(False, STREAMS[name]()))
    else:
        # BatchNorm may not see a single sample.
        with pytest.raises(InputError, match="drop_last=True"):
            trained(True, STREAMS[name]())
        assert same_bits(by_steps(True, loader=STREAMS[name]()), by_steps(False, loader=STREAMS[name]()))


def in_phases(elastic: bool) -> list[torch.Tensor]:
    """Return what two loops over the epochs make of a network, and its rates: the second trains a part, and faster."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3), nn.Linear(6, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    loaders: Any = [DataLoader(plain_data(), size, shuffle=True) for size in (BATCH, 5)]
    if elastic:
        model, optimizer, loaders = offcut.torch.elastic(model, optimizer, loaders)
    seen = []
    for count, more in ((3, True), (2, False)):
        loader = loaders[0 if more else 1]
        for p in model[0].parameters():
            p.requires_grad_(more)
        optimizer.param_groups[0]["lr"] *= 2
        for epoch in offcut.torch.epochs(count, more=more) if elastic else range(count):
            for x, y in loader:
                (model(x) - y).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            seen.append(torch.tensor([epoch, optimizer.param_groups[0]["lr"]]))
        seen += [value.clone() for value in model.state_dict().values()]
    return [*seen, torch.rand(2)]


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def by_steps(elastic: bool, form: str = "for", loader: Any = None) -> list[torch.Tensor]:
    """Return what 40 steps make of a network, over batches of an endless iterator."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3), nn.Linear(6, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    if loader is None:
        loader = DataLoader(plain_data(), BATCH, shuffle=True)
    if elastic:
        model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader)
    batches = endless(loader)
    seen = []

    def step(number: int) -> None:
        x, y = next(batches)
        (model(x) - y).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.extend([torch.tensor(number), torch.rand(1)])

    if not elastic:
        for number in range(40):
            step(number)
    elif form == "for":
        for number in offcut.torch.steps(25, more=True):
            step(number)
        for number in offcut.torch.steps(40):
            step(number)
    else:
        while offcut.torch.steps() < 40:
            step(offcut.torch.steps())
    return [*seen, *(value.clone() for value in model.state_dict().values())]


def test_two_loops_over_the_epochs_are_the_plain_ones() -> None:
    assert same_bits(in_phases(True), in_phases(False))


def test_loops_over_steps_end_when_the_job_has_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_GOAL, str(3 * BATCH))
    assert len(by_steps(True)) == 2 * 3 + 4
    assert current_training.current("the test").state.step == 3
    monkeypatch.setattr(current_training, "_current", None)
    with pytest.raises(SystemExit) as ended:
        by_steps(True, "while")
    assert ended.value.code == 0
    assert current_training.current("the test").state.step == 3
    monkeypatch.setattr(current_training, "_current", None)
    model, optimizer, loader = offcut.torch.elastic(*small())
    for x, y in loader:
        (model(x) - y).square().mean().backward()
        optimizer.step()
    assert offcut.torch.steps() == 3


def test_a_loop_over_steps_knows_how_much_is_left() -> None:
    model, optimizer, loader = offcut.torch.elastic(*small())
    batches = endless(loader)
    for number in offcut.torch.steps(10):
        x, y = next(batches)
        (model(x) - y).square().mean().backward()
        training = current_training.current("the test").training
        assert training._left(training.group) == (10 - number, (10 - number) * len(x))
        optimizer.step()


def test_epochs_may_follow_steps() -> None:
    def trains(elastic: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        loader: Any = DataLoader(plain_data(), BATCH)
        if elastic:
            model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader)

        def step(x: torch.Tensor, y: torch.Tensor) -> None:
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()

        batches = endless(loader)
        for _ in offcut.torch.steps(10, more=True) if elastic else range(10):
            step(*next(batches))
        for _ in offcut.torch.epochs(2) if elastic else range(2):
            for x, y in loader:
                step(x, y)
        return [p.detach() for p in model.parameters()]

    assert same_bits(trains(True), trains(False))


@pytest.mark.parametrize("form", ["for", "while"])
def test_loops_over_steps_are_the_plain_ones(form: str) -> None:
    assert same_bits(by_steps(True, form), by_steps(False))


def small() -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    torch.manual_seed(3)
    model = nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(plain_data(), BATCH)


def test_model_and_optimizer_are_the_same_objects_and_schedulers_may_be_made_before_or_after() -> None:
    model, optimizer, loader = small()
    before = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    elastic = offcut.torch.elastic(model, optimizer, loader, state=[before])
    assert elastic[0] is model
    assert elastic[1] is optimizer
    assert isinstance(elastic[1], torch.optim.SGD)
    after = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    called = []
    optimizer.register_step_pre_hook(lambda *_: called.append("before"))
    optimizer.register_step_post_hook(lambda *_: called.append("after"))
    for _ in offcut.torch.epochs(1):
        for x, y in elastic[2]:
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert not optimizer.step_was_skipped
            after.step()
    assert called == ["before", "after"] * 7
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.5**7)
    optimizer.step()  # the training has ended: it is the plain one


def test_the_loader_has_the_attributes_and_the_length_of_the_script_s_own() -> None:
    model, optimizer, own = small()
    _, _, loader = offcut.torch.elastic(model, optimizer, own)
    assert (len(loader), loader.batch_size, loader.dataset) == (7, BATCH, own.dataset)
    for _ in offcut.torch.epochs(2):
        for x, y in loader:
            assert len(loader) == 7
            (model(x) - y).square().mean().backward()
            optimizer.step()


def test_a_closure_is_run_once() -> None:
    model, optimizer, loader = small()
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader)
    ran = []
    for _ in offcut.torch.epochs(1):
        for x, y in loader:

            def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
                optimizer.zero_grad()
                loss = (model(x) - y).square().mean()
                loss.backward()
                ran.append(loss)
                return loss

            assert optimizer.step(closure) is ran[-1]
    assert len(ran) == 7


def test_an_evaluation_leaves_no_trace() -> None:
    model, _, loader = small()
    model = nn.Sequential(model, nn.BatchNorm1d(1), nn.Dropout(0.5))
    model[1].eval()
    _, _, loader = offcut.torch.elastic(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    before, random_before = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    test = DataLoader(plain_data(), 3, shuffle=True)
    error = offcut.torch.evaluate(test, lambda x, y: (model(x) - y).square())
    pair = offcut.torch.evaluate(test, lambda x, y: ((model(x) - y).square(), y > 0))
    assert pair[0] == error
    x, y = plain_data().tensors
    assert pair[1] == pytest.approx((y > 0).double().mean().item())
    with torch.no_grad():
        model.eval()
        assert error == pytest.approx((model(x) - y).square().mean().item(), rel=1e-6)
        model.train()
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_before)


def test_a_second_training_may_follow_the_first_where_the_script_runs_by_itself() -> None:
    loader = LOADERS["shuffled"]
    assert same_bits(trained(True, loader()), trained(False, loader()))
    assert same_bits(trained(True, loader()), trained(False, loader()))
