"""Buffers that change are the same on all members; large ones that never change cost no message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from offcut.torch.state.training_state import TrainingState
from offcut.torch.step.gradient_reduce import MemberFlags
from offcut.torch.step.member_gradients import MemberGradients

LARGE = 1 << 16


class WithTables(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))
        self.register_buffer("running", torch.zeros(4))
        self.register_buffer("table", torch.arange(float(LARGE)))
        self.register_buffer("codes", torch.zeros(LARGE))


def test_a_large_buffer_is_sent_from_the_step_on_in_which_some_member_changes_it(members: Callable) -> None:
    """Member 1 alone changes `codes`, in its third step, by `.data`; from then on all know of it."""

    def task(group: Any, _: Any) -> tuple[list[int], list[float], list[float], bool]:
        torch.set_num_threads(1)
        model = WithTables()
        state = TrainingState(model, [torch.optim.SGD(model.parameters(), lr=0.1)])
        gradients = MemberGradients(state, lambda point: False)
        sizes, codes = [], []
        for step in range(5):
            state.buffers.begin()
            gradients.begin(group)
            gradients.zero()
            model.weight.grad += 1.0
            model.running += group.rank + step
            if group.rank == 1 and step >= 2:
                model.codes.data[:2] += 3.0
            state.buffers.add_part(0.5)
            outcome = gradients.reduce(group, state.optimizers, MemberFlags(), loss=1.0, check=False)
            sizes.append(outcome.changes.numel())
            state.buffers.apply(outcome.changes)
            state.buffers.copy_boundary()
            gradients.applied(outcome)
            codes.append(float(model.codes[:3].sum()))
        kept = torch.equal(model.table, torch.arange(float(LARGE)))
        return sizes, codes, model.running.tolist(), kept

    running = sum(0.5 + step for step in range(5))
    for result in members(2, task):
        assert result == ([4, 4, 4 + LARGE, 4 + LARGE, 4 + LARGE], [0, 0, 3, 6, 9], [running] * 4, True)


def test_a_new_generation_begins_with_small_buffers() -> None:
    """A member that has just joined knows of no others."""
    model = WithTables()
    buffers = TrainingState(model, []).buffers
    buffers.begin_generation(3)
    model.codes += 1.0
    buffers.add_part(0.25)
    assert buffers.changed_unsent == [0, 0, 1]
    assert buffers.send_too([2]).sum() == LARGE / 4
    assert buffers.changes.numel() == 4 + LARGE
    buffers.begin_generation(3)
    assert buffers.changes.numel() == 4 + LARGE
    buffers.begin_generation(4)
    assert buffers.changes.numel() == 4
