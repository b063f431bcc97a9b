"""What a script does wrong is said at its first step or before, with the page that says more."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pipeline_job import plan
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import offcut.torch
from offcut.errors import InputError
from offcut.pipeline.plan_set import PlanSet
from offcut.torch import Session
from offcut.torch.elastic_parts import current_training
from offcut.torch.pipeline.session import PipelineSession
from offcut.torch.step import usage_checks
from offcut.wire.worker_env import ENV_AGENT

PAGE = Path(__file__).parents[2] / "docs" / "pitfalls.md"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(current_training, "_current", None)
    monkeypatch.setattr(usage_checks, "_launcher_told", False)
    monkeypatch.setattr(usage_checks, "_session_made", False)
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def data(samples: int = 20) -> TensorDataset:
    x = torch.randn(samples, 4, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x.sum(1, keepdim=True))


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))


def session(model: nn.Module, **options: Any) -> Session:
    return Session(model, torch.optim.SGD(model.parameters(), 0.1), data(), **{"global_batch": 8, **options})


def elastic(model: nn.Module) -> tuple[Any, Any, Any]:
    return offcut.torch.elastic(model, torch.optim.SGD(model.parameters(), 0.1), DataLoader(data(), 8))


def train(given: Session, loss_of: Callable[[torch.Tensor], Any] = torch.mean) -> None:
    with given:
        for epoch in given.epochs(1):
            for batch in epoch:
                given.step(loss_of(nn.functional.mse_loss(given.model(batch.x), batch.y, reduction="none")))


def train_elastic(model: nn.Module, optimizer: torch.optim.Optimizer, loader: Any) -> None:
    for _ in offcut.torch.epochs(1):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()


def said_on_the_page(error: BaseException) -> None:
    assert "docs/pitfalls.md" in "".join([str(error), *getattr(error, "__notes__", ())])


def test_a_session_that_was_never_entered() -> None:
    given = session(network())
    with pytest.raises(InputError, match="outside of the session's `with` block") as caught:
        next(given.epochs(1))
    said_on_the_page(caught.value)


def test_a_second_session_in_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    train(session(network()))
    train(session(network()))
    assert not usage_checks._session_made, "alone there may be several"
    monkeypatch.setenv(ENV_AGENT, "not asked")
    usage_checks.note_session()
    with pytest.raises(InputError, match="the script has a session already") as caught:
        session(network())
    said_on_the_page(caught.value)


def test_lbfgs() -> None:
    model = network()
    lbfgs = torch.optim.LBFGS(model.parameters())
    for make in (
        lambda: Session(model, lbfgs, data(), global_batch=8),
        lambda: PipelineSession(model, lbfgs, data(), loss_fn=nn.functional.mse_loss, plans=PlanSet((plan("1"),))),
        lambda: offcut.torch.elastic(model, lbfgs, DataLoader(data(), 8)),
    ):
        with pytest.raises(InputError, match="LBFGS computes several gradients") as caught:
            make()
        said_on_the_page(caught.value)


@pytest.mark.parametrize(
    ("loss_of", "says"),
    [(lambda losses: losses, r"has the shape \(8, 1\)"), (lambda losses: losses.mean().item(), "is of the type float")],
)
def test_a_loss_that_is_not_a_scalar(loss_of: Callable[[torch.Tensor], Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        train(session(network()), loss_of)
    said_on_the_page(caught.value)


def test_a_pipeline_s_loss_that_is_not_a_scalar() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(5)), nn.Linear(4, 1))
    loss_fn = nn.MSELoss(reduction="none")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    given = PipelineSession(model, optimizer, data(), loss_fn=loss_fn, plans=PlanSet((plan("1"),)))

    def train_it() -> None:
        with given:
            for epoch in given.epochs(1):
                for _ in epoch:
                    given.step()

    with pytest.raises(InputError, match="must be a scalar"):
        train_it()


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        return iter(data())


@pytest.mark.parametrize(
    ("dataset", "says"), [(DataLoader(data(), 4), "the dataset is a DataLoader"), (Stream(), "a Stream, has no length")]
)
def test_a_dataset_that_is_a_loader_or_a_stream(dataset: Any, says: str) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for make in (
        lambda: Session(model, optimizer, dataset, global_batch=8),
        lambda: PipelineSession(model, optimizer, dataset, loss_fn=nn.functional.mse_loss),
    ):
        with pytest.raises(InputError, match=says) as caught:
            make()
        said_on_the_page(caught.value)


def test_a_share_of_one_sample_for_batch_norm() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    with pytest.raises(ValueError, match="more than 1 value per channel") as caught:
        train(session(model, max_local_batch=1))
    said_on_the_page(caught.value)
    assert "offcut: a member worked on a single sample" in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("how", ["session", "elastic"])
@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"RANK": "0", "WORLD_SIZE": "4"}, "RANK or WORLD_SIZE is set"),
        ({"RANK": "0", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "x"}, "torchrun has started 4 processes"),
        ({"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x"}, None),
        ({}, None),
    ],
)
def test_variables_of_torchrun_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, how: str, variables: dict[str, str], says: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    make = session if how == "session" else elastic
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make(network())
        monkeypatch.setattr(current_training, "_current", None)
        make(network())
    told = [str(warning.message) for warning in caught if "offcut" in str(warning.message)]
    assert len(told) == (1 if says else 0), "it is said once"
    if says:
        assert says in told[0]
        assert "docs/pitfalls.md" in told[0]


def test_an_elastic_loop_without_optimizer_step() -> None:
    _, _, loader = elastic(network())

    def loop() -> None:
        for _ in offcut.torch.epochs(1):
            for _ in loader:
                pass

    with pytest.raises(InputError, match=r"there was no optimizer.step\(\)") as caught:
        loop()
    said_on_the_page(caught.value)


def adapt(model: nn.Sequential) -> None:
    model[0].register_parameter("adapter", nn.Parameter(torch.zeros(2)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (nn.Module.double, r"0.weight is torch.float64 on cpu, and was torch.float32 on cpu"),
        (lambda model: model.to("meta"), r"0.weight is torch.float32 on meta, and was torch.float32 on cpu"),
        (adapt, r"0.adapter is torch.float32 on cpu, and was not there"),
        (lambda model: model.pop(2), "2.weight is gone"),
    ],
)
def test_a_model_that_is_changed_afterwards(change: Callable[[nn.Module], Any], says: str) -> None:
    model = network()
    parts = elastic(model)
    change(model)
    with pytest.raises(InputError, match=says) as caught:
        train_elastic(*parts)
    said_on_the_page(caught.value)
    again = network()
    given = session(again)
    change(again)
    with pytest.raises(InputError, match=says):
        train(given)


def test_a_model_that_is_moved_inside_the_loop() -> None:
    model, optimizer, loader = elastic(network())

    def train_it() -> None:
        for _ in offcut.torch.epochs(1):
            for i, (x, y) in enumerate(loader):
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
                if i == 0:
                    model[0].bias.data = model[0].bias.data.double()

    with pytest.raises(InputError, match=r"0.bias is torch.float64"):
        train_it()


def test_what_is_allowed_is_not_refused() -> None:
    """Freezing, and buffers that a module makes in its first forward pass."""

    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not hasattr(self, "cache"):
                self.register_buffer("cache", torch.ones(1), persistent=False)
            return self.inner(x) * self.cache

    model, optimizer, loader = elastic(Late())
    model.inner[0].weight.requires_grad_(False)
    train_elastic(model, optimizer, loader)


def test_the_page_has_the_messages() -> None:
    page = PAGE.read_text()
    for words in (
        "LBFGS computes several gradients within one step()",
        "must be a scalar",
        "the dataset is a DataLoader",
        "more than 1 value per channel",
        "would work on 128 at once, more than max_local_batch=64",
        "RANK or WORLD_SIZE is set in the environment",
        "torchrun has started 4 processes of this script",
        "there was no optimizer.step() after the last one",
        "The model was changed after it was given to offcut",
        "outside of the session's with block",
    ):
        assert words in page
