"""The fingerprint of a training: the same for the trials of a sweep, another for another model, batch or input."""

from __future__ import annotations

import pytest
import torch

from offcut.torch.fingerprint import fingerprint
from offcut.torch.membership.step_timing import StepTiming
from offcut.torch.step.batch_policy import BatchPolicy

POLICY = BatchPolicy(global_batch=32)


def model(width: int = 8, activation: type[torch.nn.Module] = torch.nn.ReLU) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, width), activation(), torch.nn.Linear(width, 1))


def data(features: int = 4, rows: int = 16) -> list[torch.Tensor]:
    return [torch.zeros(rows, features), torch.zeros(rows, 1)]


def test_weights_and_shares_do_not_matter():
    assert fingerprint(model(), POLICY, data()) == fingerprint(model(), POLICY, data(rows=3))


def test_structure_batch_and_input_do():
    frozen = model()
    frozen[0].requires_grad_(False)
    several = {
        fingerprint(model(), POLICY, data()),
        fingerprint(model(9), POLICY, data()),
        fingerprint(model(activation=torch.nn.Tanh), POLICY, data()),
        fingerprint(frozen, POLICY, data()),
        fingerprint(model(), BatchPolicy(global_batch=64), data()),
        fingerprint(model(), BatchPolicy(batch_per_rank=32), data()),
        fingerprint(model(), POLICY, data(features=5)),
        fingerprint(model(), POLICY, {"x": torch.zeros(2, 4), "y": ["a", "b"]}),
        fingerprint(model(), POLICY, "text"),
    }
    assert len(several) == 9


def test_only_the_time_between_reduces_is_work():
    pace = StepTiming()
    with pace:
        assert pace.own_s == 0.0, "nobody knows when the first step began"
    with pace:
        worked_s = pace.own_s
    assert worked_s > 0
    with pytest.raises(ValueError, match="a peer is gone"), pace:
        raise ValueError("a peer is gone")
    worked_s = pace.own_s
    with pace:
        assert pace.own_s == worked_s, "the time of a new generation does not count as work"
