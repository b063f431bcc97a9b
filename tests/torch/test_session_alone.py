"""The session in a script that runs alone: its promises to scripts, and its answers to misuse."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from offcut.errors import InputError, OffcutError
from offcut.torch import Session
from offcut.torch.state.buffers import Buffers

SAMPLES = 50


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 4, generator=generator)
    return TensorDataset(x, x.sum(1, keepdim=True))


def network(*extra: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), *extra, torch.nn.Linear(8, 1))


def loss_of(session: Session, batch: Any) -> torch.Tensor:
    return (session.model(batch.x) - batch.y).square().mean()


def train(model: torch.nn.Module, epochs: int = 3, **options: Any) -> list[float]:
    losses = []
    options = {"global_batch": 16, **options}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with Session(model, optimizer, data(), **options) as session:
        for epoch in session.epochs(epochs):
            for batch in epoch:
                if session.step(loss_of(session, batch)):
                    losses.append(session.loss)
    return losses


def test_a_whole_training_with_an_uneven_last_batch() -> None:
    seen: list[list[int]] = []
    model = network()
    with Session(model, torch.optim.SGD(model.parameters(), lr=0.1), data(), global_batch=16) as session:
        for epoch in session.epochs(2):
            indices: list[int] = []
            for batch in epoch:
                assert session.step(loss_of(session, batch)) is True
                indices += batch.indices.tolist()
            seen.append(indices)
        assert (session.steps, session.rank, session.world, session.once()) == (8, 0, 1, True)
    assert all(sorted(indices) == list(range(SAMPLES)) for indices in seen)
    assert seen[0] != seen[1]


def test_parts_of_a_share_add_up_to_the_whole() -> None:
    whole = train(network())
    assert len(whole) == 12
    for options in ({"max_local_batch": 5}, {"virtual_shards": 4}, {"virtual_shards": 3, "max_local_batch": 2}):
        assert train(network(), **options) == pytest.approx(whole, abs=1e-5), options


def test_parts_and_the_plain_way_agree_with_plain_torch() -> None:
    """The same arithmetic written out by hand."""
    model, losses = network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = data().tensors
    for epoch in range(3):
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
        for indices in order.split(16):
            optimizer.zero_grad()
            loss = (model(x[indices]) - y[indices]).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert train(network()) == pytest.approx(losses, abs=1e-6)


def test_a_scheduler_advances_once_per_step_however_many_parts() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    counted = []
    with Session(model, optimizer, data(), global_batch=25, virtual_shards=5) as session:
        session.register(schedule)
        for epoch in session.epochs(2):
            for batch in epoch:
                counted.append(session.step(loss_of(session, batch) * 1e-3))
                schedule.step()
    assert counted == [False, False, False, False, True] * 4
    assert optimizer.param_groups[0]["lr"] == 0.5**4


def test_batch_statistics_are_those_of_the_shards_and_the_running_ones_their_mean() -> None:
    model = network(torch.nn.BatchNorm1d(8, momentum=0.5))
    norm = model[2]
    before = copy.deepcopy(model).double()
    with Session(model, torch.optim.SGD(model.parameters(), lr=0.0), data(), global_batch=50, virtual_shards=2) as s:
        shards = []
        for epoch in s.epochs(1):
            for batch in epoch:
                shards.append(batch.x)
                s.step(loss_of(s, batch))
    means = [before[1](before[0](x.double())).mean(0) for x in shards]
    assert norm.running_mean.tolist() == pytest.approx((0.5 * (means[0] + means[1]) / 2).tolist(), abs=1e-6)
    assert norm.num_batches_tracked.item() == 1


def test_unchanged_buffers_keep_their_bits() -> None:
    module = torch.nn.Module()
    module.register_buffer("mask", torch.tensor([-float("inf"), 0.1, 0.0]))
    module.register_buffer("running", torch.tensor([1.0, 2.0]))
    module.register_buffer("count", torch.tensor(3))
    buffers = Buffers(module)
    buffers.begin()
    for weight, to in ((0.3, 5.0), (0.7, 9.0)):
        buffers.restore()
        module.running += to
        module.count += 1
        buffers.add_part(weight)
    buffers.apply(buffers.changes)
    assert module.mask.tolist() == torch.tensor([-float("inf"), 0.1, 0.0]).tolist()
    assert module.running.tolist() == pytest.approx([1 + 7.8, 2 + 7.8])
    assert module.count.item() == 4


def test_random_numbers_depend_on_the_step_alone() -> None:
    def drawn(disturb: bool) -> list[tuple[float, float, float]]:
        model, numbers = network(), []
        with Session(model, torch.optim.SGD(model.parameters(), lr=0.1), data(), global_batch=25) as session:
            for epoch in session.epochs(2):
                for batch in epoch:
                    numbers.append((torch.rand(1).item(), random.random(), float(np.random.rand())))
                    if disturb:
                        torch.rand(17)
                    session.step(loss_of(session, batch))
        return numbers

    assert drawn(False) == drawn(True)
    assert len(set(drawn(False))) == 4


def test_clipping_limits_the_norm_of_the_whole_gradient() -> None:
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    with Session(model, torch.optim.SGD(model.parameters(), lr=1.0), data(), global_batch=50, clip_norm=0.01) as s:
        for epoch in s.epochs(1):
            for batch in epoch:
                s.step(100 * loss_of(s, batch))
    moved = torch.cat([(p - b).flatten() for p, b in zip(model.parameters(), before, strict=True)]).norm().item()
    assert moved == pytest.approx(0.01, rel=1e-3)


def test_a_scaler_skips_what_overflows_and_goes_on() -> None:
    model = network()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=1000)
    before = model[0].weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Session(model, optimizer, data(), global_batch=10, scaler=scaler) as session:
        for epoch in session.epochs(4):
            for batch in epoch:
                session.step(1e3 * loss_of(session, batch))
                if session.steps == 1:
                    assert torch.equal(model[0].weight, before), "the first gradient is infinite"
    assert scaler.get_scale() < 2.0**127
    assert not torch.equal(model[0].weight, before)
    assert torch.isfinite(model[0].weight).all()


def test_a_scaled_training_is_the_plain_one() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    assert train(network(), scaler=scaler) == pytest.approx(train(network()), abs=1e-5)


def test_the_goal_ends_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OFFCUT_GOAL_SAMPLES", "60")
    assert len(train(network(), epochs=100)) == 5  # 16 + 16 + 16 + 2 + 16 samples


def test_two_optimizers_in_one_step() -> None:
    """A small adversarial training, against the same by hand."""

    def nets() -> tuple[torch.nn.Module, torch.nn.Module, list[torch.optim.Optimizer]]:
        torch.manual_seed(5)
        maker, judge = torch.nn.Linear(4, 1), torch.nn.Linear(1, 1)
        return maker, judge, [torch.optim.Adam(maker.parameters(), 0.05), torch.optim.Adam(judge.parameters(), 0.05)]

    def judge_loss(maker: Any, judge: Any, x: Any, y: Any) -> torch.Tensor:
        return judge(maker(x).detach()).sigmoid().mean() - judge(y).sigmoid().mean()

    maker, judge, (for_maker, for_judge) = nets()
    both = torch.nn.ModuleDict({"maker": maker, "judge": judge})
    losses = []
    with Session(both, [for_maker, for_judge], data(), global_batch=25) as session:
        for epoch in session.epochs(3):
            for batch in epoch:
                assert session.update(judge_loss(maker, judge, batch.x, batch.y), for_judge)
                assert session.step(-judge(maker(batch.x)).sigmoid().mean())
                losses.append(judge.weight.item())
    maker, judge, (for_maker, for_judge) = nets()
    by_hand = []
    x, y = data().tensors
    for epoch in range(3):
        for indices in torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch)).split(25):
            for_judge.zero_grad()
            judge_loss(maker, judge, x[indices], y[indices]).backward()
            for_judge.step()
            for_maker.zero_grad()
            (-judge(maker(x[indices])).sigmoid().mean()).backward()
            for_maker.step()
            by_hand.append(judge.weight.item())
    assert losses == pytest.approx(by_hand, abs=1e-6)


class Noisy(Dataset):
    """Samples with augmentation: random numbers of all three kinds."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        noise = torch.rand(4) + random.random() + float(np.random.rand())
        return i + noise, torch.ones(1), os.getpid()


@pytest.mark.parametrize("options", [{}, {"max_local_batch": 3}, {"virtual_shards": 4}])
def test_loading_processes_give_the_same_samples(options: dict[str, int]) -> None:
    def fetched(workers: int) -> tuple[list[float], set[int]]:
        model, values, pids = network(), [], set()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with Session(model, optimizer, Noisy(), global_batch=10, loader_workers=workers, **options) as session:
            for epoch in session.epochs(2):
                for batch in epoch:
                    values.append(batch.x.sum().item())
                    pids |= set(batch[2].tolist())
                    session.step(loss_of(session, batch))
        return values, pids

    here, own = fetched(0)
    ahead, others = fetched(2)
    assert ahead == here
    assert own == {os.getpid()}
    assert os.getpid() not in others


def test_a_loading_process_that_dies_is_named() -> None:
    class Deadly(Noisy):
        def __getitem__(self, i: int) -> Any:
            os._exit(1)

    model = network()
    session = Session(model, torch.optim.SGD(model.parameters()), Deadly(), global_batch=10, loader_workers=1)
    with pytest.raises(OffcutError, match="data loading process died"), session:
        next(iter(next(iter(session.epochs(1)))))


def misuse(act: Callable[[Session, Any], Any]) -> None:
    model = network()
    with Session(model, torch.optim.SGD(model.parameters()), data(), global_batch=16) as session:
        for epoch in session.epochs(1):
            for batch in epoch:
                act(session, batch)


def step_twice(session: Session, batch: Any) -> None:
    session.step(loss_of(session, batch))
    session.step()


def update_with_a_stranger(session: Session, batch: Any) -> None:
    session.update(loss_of(session, batch), torch.optim.SGD(session.model.parameters()))


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda session, batch: None, "the last batch had no step"),
        (step_twice, r"step\(\) without a batch"),
        (update_with_a_stranger, "each of the session's optimizers once"),
        (lambda session, batch: session.register(3), "type int, which has no state"),
    ],
)
def test_misuse_gets_a_sentence(act: Callable[[Session, Any], Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        misuse(act)


def test_an_empty_dataset_and_a_state_that_cannot_travel_get_a_sentence() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(InputError, match="dataset is empty"):
        Session(model, optimizer, [], global_batch=4)

    class Odd:
        def state_dict(self) -> dict[str, Any]:
            return {"array": np.zeros(3)}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    session = Session(model, optimizer, data(), global_batch=4)
    session.register(Odd())
    with pytest.raises(InputError, match=r"\['array'\] is of the type numpy.ndarray"), session:
        next(iter(session.epochs(1)))


def test_a_session_in_a_job_of_mode_restart_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ranks would each train for themselves."""
    monkeypatch.setenv("OFFCUT_JOB", "digits-3")
    monkeypatch.delenv("OFFCUT_AGENT", raising=False)
    with pytest.raises(InputError, match=r"digits-3 has a session, but the job's mode is 'restart'"):
        train(network())


@pytest.mark.parametrize("idiom", ["backward of the loss", "step of the optimizer", "both"])
def test_a_script_s_own_backward_or_optimizer_step_is_refused(idiom: str) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = copy.deepcopy(model.state_dict())

    def first_step() -> None:
        with Session(model, optimizer, data(), global_batch=16) as session:
            for epoch in session.epochs(1):
                for batch in epoch:
                    loss = loss_of(session, batch)
                    if idiom != "step of the optimizer":
                        loss.backward()
                    if idiom != "backward of the loss":
                        optimizer.step()
                    session.step()

    with pytest.raises(InputError, match=r"backward|optimizer's step"):
        first_step()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_norm_that_is_clipped_is_that_of_all_optimizers_together() -> None:
    model = network()
    optimizers = [torch.optim.SGD([p], lr=1.0) for p in model.parameters()]
    before = [p.detach().clone() for p in model.parameters()]
    with Session(model, optimizers, data(), global_batch=SAMPLES, clip_norm=0.01) as session:
        for epoch in session.epochs(1):
            for batch in epoch:
                session.step(loss_of(session, batch) * 1000)
    moved = torch.cat([(p.detach() - old).reshape(-1) for p, old in zip(model.parameters(), before, strict=True)])
    assert float(moved.norm()) == pytest.approx(0.01, rel=1e-3)
