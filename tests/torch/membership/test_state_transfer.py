"""Real processes give and receive whole training states."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offcut.torch.membership import state_transfer
from offcut.torch.membership.process_group import Abandoned
from offcut.torch.state.training_state import TrainingState


def a_tree() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    return {
        "large": torch.randn(9 << 20, generator=generator),
        "small": [torch.arange(5), torch.tensor(3.5), torch.zeros(0, 4), torch.ones(2, 3).t()],
        "half": torch.full((7,), 1.5, dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "plain": {"lr": 0.1, "name": "x", "none": None, "milestones": Counter({3: 1}), 7: (1, 2)},
        "ordered": OrderedDict(a=torch.ones(1)),
    }


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert type(one) is type(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    else:
        assert one == other


def test_a_state_arrives_whole_at_two_receivers(members: Callable) -> None:
    def task(group: Any, _: Any) -> bool:
        tree = a_tree() if group.rank == 0 else None
        for giver, receiver in [(0, 1), (1, 2)]:
            if group.rank == giver:
                state_transfer.send_state(group, tree, receiver)
            elif group.rank == receiver:
                tree = state_transfer.receive_state(group, giver)
        assert_same(tree, a_tree())
        return True

    assert members(3, task) == [True, True, True]


def test_a_state_is_received_where_there_is_room_that_fits(members: Callable) -> None:
    def task(group: Any, _: Any) -> list[bool]:
        fits, too_long, other_kind = torch.zeros(1000), torch.zeros(1001), torch.zeros(1000, dtype=torch.float64)
        across = torch.zeros(1000, 2).t()
        room = {"m.a": fits, "m.b": too_long, "m.c": other_kind, "m.d": across}
        tree = {"m": {name: torch.full((1000,), 2.0) for name in "abc"} | {"d": torch.full((2, 1000), 2.0)}}
        if group.rank == 0:
            state_transfer.send_state(group, tree, 1)
            return []
        got = state_transfer.receive_state(group, 0, room=room)
        assert_same(got, tree)
        return [bool((there == 2.0).all()) for there in room.values()]

    assert members(2, task) == [[], [True, False, False, False]]


def test_a_joiner_trains_on_as_the_giver_does(members: Callable) -> None:
    def task(group: Any, _: Any) -> list[float]:
        torch.manual_seed(group.rank)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], 0.5)
        average = torch.optim.swa_utils.AveragedModel(model)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0 * (group.rank + 1), growth_interval=2)
        state = TrainingState(model, [optimizer])
        state.registered += [schedule, average, scaler]
        x = torch.linspace(0, 1, 24).reshape(6, 4)

        def steps(count: int) -> list[float]:
            losses = []
            for _ in range(count):
                loss = model(x).square().mean()
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                schedule.step()
                average.update_parameters(model)
                losses += [loss.item(), scaler.get_scale(), optimizer.param_groups[0]["lr"]]
            return [*losses, *(p.sum().item() for p in average.parameters()), float(average.n_averaged)]

        if group.rank == 0:
            optimizer.param_groups[0]["weight_decay"] = 0.3
            steps(3)
            state.step, state.samples = 3, 18
            state_transfer.send_state(group, state.tree(), 1)
        else:
            state.load(state_transfer.receive_state(group, 0))
        assert (state.step, state.samples) == (3, 18)
        assert optimizer.param_groups[0]["weight_decay"] == 0.3
        return steps(4)

    giver, joiner = members(2, task)
    assert joiner == giver


def test_a_receiver_gives_up_when_its_generation_does(members: Callable) -> None:
    def task(group: Any, changes: Any) -> str:
        if group.rank == 0:
            group.wait(group.send(torch.tensor([1000]), 1))  # and never sends what it promised
            group.wait(group.send(torch.zeros(1), 1))
            group.receive(torch.zeros(1), 1)  # stays until the other one has given up
            return "gave"
        size = torch.zeros(1, dtype=torch.int64)
        group.receive(size, 0)
        group.receive(torch.zeros(1), 0)
        changes.declare_stale()
        with pytest.raises(Abandoned, match="newer generation"):
            group.receive(torch.zeros(1000), 0)
        changes.stale = False
        group.wait(group.send(torch.zeros(1), 0))
        return "gave up"

    assert members(2, task) == ["gave", "gave up"]


@given(sizes=st.lists(st.integers(0, 3 * state_transfer.CHUNK_BYTES), max_size=6))
def test_messages_cover_every_byte_once_and_are_small(sizes: list[int]) -> None:
    seen = [0] * len(sizes)
    for message in state_transfer._plan(sizes):
        assert 0 < sum(stop - start for _, start, stop in message) <= state_transfer.CHUNK_BYTES
        for buffer, start, stop in message:
            assert start == seen[buffer]
            seen[buffer] = stop
    assert seen == sizes
