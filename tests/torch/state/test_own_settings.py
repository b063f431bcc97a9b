"""A trial that goes on from another trial's checkpoint has its own learning rate, where the schedule was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from offcut.torch.state.own_settings import OwnSettings, copied_step

SCHEDULES: dict[str, Any] = {
    "none": None,
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20),
    "step": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5),
    "lambda": lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n)),
}


def made(lr: float, momentum: float, schedule: str) -> tuple[torch.optim.Optimizer, list[Any]]:
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    make = SCHEDULES[schedule]
    return optimizer, [] if make is None else [make(optimizer)]


def trained(optimizer: torch.optim.Optimizer, schedules: list[Any], steps: int) -> list[float]:
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        for group in optimizer.param_groups:
            for p in group["params"]:
                p.grad = torch.ones_like(p)
        optimizer.step()
        for each in schedules:
            each.step()
    return rates


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_learning_rate_is_the_trials_own_from_there_on(schedule: str) -> None:
    source, source_schedules = made(0.1, 0.9, schedule)
    trained(source, source_schedules, 7)
    taker, taker_schedules = made(0.4, 0.5, schedule)
    own = OwnSettings([taker], taker_schedules)
    taker.load_state_dict(source.state_dict())
    for mine, other in zip(taker_schedules, source_schedules, strict=True):
        mine.load_state_dict(other.state_dict())
    own.restore()
    assert taker.param_groups[0]["momentum"] == 0.5
    moments = [state["momentum_buffer"] for state in taker.state.values()]
    assert len(moments) == 2, "what the optimizer has learned stays"
    alone, alone_schedules = made(0.4, 0.5, schedule)
    expected = trained(alone, alone_schedules, 12)[7:]
    assert trained(taker, taker_schedules, 5) == pytest.approx(expected)
    assert [each.get_last_lr() for each in taker_schedules] == [
        pytest.approx(each.get_last_lr()) for each in alone_schedules
    ]


def test_a_learning_rate_of_0_does_not_fail() -> None:
    source, source_schedules = made(0.0, 0.9, "step")
    taker, schedules = made(0.4, 0.5, "step")
    own = OwnSettings([taker], schedules)
    taker.load_state_dict(source.state_dict())
    schedules[0].load_state_dict(source_schedules[0].state_dict())
    own.restore()
    assert taker.param_groups[0]["lr"] == 0.4


def test_the_step_that_was_copied(tmp_path: Path) -> None:
    assert copied_step(tmp_path) == -1
    for text, step in (("17", 17), ("", -1), ("x", -1)):
        (tmp_path / "copied-step").write_text(text)
        assert copied_step(tmp_path) == step
