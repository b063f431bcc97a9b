"""Gradients are summed over real processes, and an abandoned reduce changes no later one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from offcut.torch.membership.process_group import Abandoned
from offcut.torch.step.gradient_reduce import Reducer, StepSignals


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2).double(), torch.nn.Linear(2, 2))
    layers[2].requires_grad_(False)
    return layers


def test_sums_every_kind_of_gradient_and_tells_who_leaves(members: Callable) -> None:
    def task(group: Any, _: Any) -> tuple[Any, ...]:
        layers = model()
        reducer = Reducer([p for p in layers.parameters() if p.requires_grad])
        reducer.zero()
        layers[0].weight.grad += group.rank + 1
        layers[1].bias.grad = torch.full((2,), 10.0 * group.rank, dtype=torch.float64)  # replaced by the script
        layers[1].weight.grad = None  # took no part
        signals = StepSignals(
            group,
            loss=0.25,
            switch=group.rank == 1,
            save=group.rank == 0,
            leaving=group.rank == 2,
            changes=torch.tensor([1.0, group.rank]),
        )
        for work in [*reducer.start(group), signals.start(group)]:
            group.wait(work)
        outcome = signals.outcome()
        return (
            layers[0].weight.grad.unique().tolist(),
            layers[1].bias.grad.tolist(),
            layers[1].weight.grad.abs().sum().item(),
            layers[2].weight.grad,
            (outcome.loss, outcome.switch, outcome.save, outcome.leaving, outcome.changes.tolist()),
        )

    for result in members(3, task):
        assert result == ([6.0], [30.0, 30.0], 0.0, None, (0.75, True, True, (2,), [3.0, 3.0]))


NO_CHANGES = torch.zeros(0, dtype=torch.float64)


def messages_and_outcome(group: Any, kind: torch.dtype, losses: list[float]) -> tuple[int, Any]:
    """Return the number of messages of a reduce of gradients of one type, and what each member knows after it."""
    weight = torch.nn.Parameter(torch.zeros(4, dtype=kind))
    reducer = Reducer([weight])
    reducer.zero()
    weight.grad += 1
    signals = StepSignals(
        group, loss=losses[group.rank], switch=False, save=True, leaving=group.rank == 1, changes=NO_CHANGES
    )
    under_way = reducer.start(group, signals)
    if not signals.sent:
        under_way.append(signals.start(group))
    for work in under_way:
        group.wait(work)
    assert weight.grad.tolist() == [group.world] * 4
    return len(under_way), signals.outcome()


@pytest.mark.parametrize(
    ("kind", "messages"), [(torch.float32, 1), (torch.float64, 1), (torch.bfloat16, 2)], ids=["f32", "f64", "bf16"]
)
def test_the_signals_are_exact_with_any_gradients(members: Callable, kind: torch.dtype, messages: int) -> None:
    losses = [1 / 3, 1e-9 / 7, 12345678.9]

    def task(group: Any, _: Any) -> tuple[Any, ...]:
        count, outcome = messages_and_outcome(group, kind, losses)
        return count, outcome.loss, outcome.switch, outcome.save, outcome.leaving, outcome.changes.tolist()

    for result in members(3, task):
        assert result == (messages, sum(losses), False, True, (1,), [])


@pytest.mark.parametrize("loss", [math.inf, -math.inf, math.nan])
def test_a_loss_that_is_not_finite_is_reported(members: Callable, loss: float) -> None:
    for told in members(2, lambda group, _: messages_and_outcome(group, torch.float32, [1.0, loss])[1].loss):
        assert told == pytest.approx(loss, nan_ok=True)


def test_signals_without_room_in_a_buffer_are_sent_alone(members: Callable) -> None:
    def task(group: Any, _: Any) -> tuple[int, bool]:
        signals = StepSignals(group, loss=1.0, switch=False, save=False, leaving=False, changes=NO_CHANGES)
        return signals.write_into(torch.zeros(2 + 4 * group.world - 1)), signals.sent

    assert members(1, task) == [(0, False)]


def test_an_abandoned_reduce_writes_into_no_later_gradient(members: Callable) -> None:
    def task(group: Any, changes: Any) -> float:
        weight = torch.nn.Parameter(torch.zeros(4))
        reducer = Reducer([weight])
        reducer.zero()
        weight.grad += 1
        if group.rank == 0:
            (under_way,) = reducer.start(group)
            changes.declare_stale()
            with pytest.raises(Abandoned):
                group.wait(under_way)
            reducer.abandon_buffers()
            reducer.zero()
            weight.grad += 5
            ours, token = weight.grad, torch.zeros(1)
            # Only now the other one enters: the old reduce ends, in buffers that nobody looks at.
            sent = group.send(token, 1)
            while not (under_way.done and sent.done):
                pass
            assert ours is weight.grad
            return weight.grad.sum().item()
        group.receive(torch.zeros(1), 0)
        group.wait(reducer.start(group)[0])
        return weight.grad.sum().item()

    assert members(2, task) == [20.0, 8.0]


def test_a_peer_that_dies_is_noticed(members: Callable) -> None:
    def task(group: Any, _: Any) -> str:
        if group.rank == 1:
            return "gone"
        with pytest.raises(Abandoned, match="a peer has died"):
            group.gather([1])
        return "noticed"

    assert members(2, task) == ["noticed", "gone"]


def test_a_group_of_one_has_nothing_to_wait_for(members: Callable) -> None:
    assert members(1, lambda group, _: group.gather([3, 4])) == [[[3, 4]]]
