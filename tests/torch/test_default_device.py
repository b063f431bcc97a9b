"""A script may call torch.set_default_device: what offcut makes for itself stays on the CPU.

The device here is `meta`, whose tensors have no values: whatever lands on it by mistake raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pipeline_job import plan
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import offcut.torch
from offcut.pipeline.plan_set import PlanSet
from offcut.torch import Session
from offcut.torch.elastic_parts import current_training
from offcut.torch.membership.state_transfer import receive_state, send_state
from offcut.torch.pipeline.session import PipelineSession
from offcut.torch.state.checkpoint_layout import WholeState
from offcut.torch.state.checkpoints import Checkpoints
from offcut.torch.state.training_state import TrainingState
from offcut.torch.step.gradient_reduce import MemberFlags
from offcut.torch.step.member_gradients import MemberGradients


@pytest.fixture(autouse=True)
def back_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(current_training, "_current", None)
    yield
    torch.set_default_device(None)


def network() -> nn.Sequential:
    return nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(5)), nn.Linear(4, 1))


def data() -> TensorDataset:
    x = torch.randn(24, 4)
    return TensorDataset(x, x.sum(1, keepdim=True))


def test_a_session() -> None:
    model, samples = network(), data()
    optimizer = torch.optim.AdamW(model.parameters())
    torch.set_default_device("meta")
    with Session(model, optimizer, samples, global_batch=8, max_local_batch=4, clip_norm=1.0) as session:
        for epoch in session.epochs(1):
            for batch in epoch:
                session.step(nn.functional.mse_loss(model(batch.x), batch.y))
    assert session.loss > 0


def test_a_pipeline() -> None:
    model, samples = network(), data()
    optimizer = torch.optim.AdamW(model.parameters())
    torch.set_default_device("meta")
    plans = PlanSet((plan("1"),))
    with PipelineSession(model, optimizer, samples, loss_fn=nn.functional.mse_loss, plans=plans) as session:
        for epoch in session.epochs(1):
            for _ in epoch:
                session.step()
    assert session.loss > 0


def test_elastic_parts() -> None:
    """A DataLoader itself draws a seed on the default device when a loop begins, which `meta` cannot give."""
    model, samples = network(), data()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, DataLoader(samples, 8))
    for _ in offcut.torch.epochs(1):
        for x, y in loader:
            torch.set_default_device("meta")
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            offcut.torch.report_loss(loss)
            optimizer.step()
        torch.set_default_device(None)
    assert offcut.torch.steps() == 3


def test_members(members: Callable, tmp_path: Path) -> None:
    def task(group: Any, _: Any) -> tuple[float, float, bool]:
        torch.set_num_threads(1)
        model = network()
        state = TrainingState(model, [torch.optim.AdamW(model.parameters())])
        torch.set_default_device("meta")
        gradients = MemberGradients(state, lambda point: False)
        state.buffers.begin()
        gradients.begin(group)
        gradients.zero()
        for p in model.parameters():
            p.grad += 1.0
        state.buffers.add_part(0.5)
        outcome = gradients.reduce(group, state.optimizers, MemberFlags(), loss=0.5, check=True)
        state.optimizers[0].step()
        if group.rank == 0:
            send_state(group, state.tree(), 1)
        else:
            state.load(receive_state(group, 0, room=state.room()))
        checkpoints = Checkpoints(tmp_path / str(group.rank), 0.0, print, WholeState())
        checkpoints.save_now(1, state.tree())
        found = checkpoints.read_newest(state.check_fits)
        return outcome.loss, float(model[5].bias.grad), found is not None

    assert members(2, task) == [(1.0, 2.0, True)] * 2
