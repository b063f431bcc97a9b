"""The optimizers' state in shards: what one member does with its part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from offcut.errors import InputError
from offcut.membership.state_shards import plan_shards
from offcut.torch.state.checkpoint_layout import ByLayer, SavedLayers, WholeState
from offcut.torch.state.checkpoints import Checkpoints
from offcut.torch.state.optimizer_shards import OptimizerShards
from offcut.torch.state.training_state import TrainingState


def training(layers: int = 3) -> tuple[TrainingState, OptimizerShards]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(layers)))
    state = TrainingState(model, [torch.optim.AdamW(model.parameters())])
    return state, OptimizerShards(state, 1)


def update(state: TrainingState, shards: OptimizerShards) -> None:
    for p in state.model.parameters():
        p.grad = torch.ones_like(p)
    with shards.updating():
        state.optimizers[0].step()


def values(state: TrainingState) -> list[list[float]]:
    return [p.flatten().tolist() for p in state.model.parameters()]


def test_only_what_is_held_is_updated_and_kept() -> None:
    state, shards = training()
    shards.place(plan_shards([frozenset()] * 2, shards.sizes), 0)
    before = values(state)
    update(state, shards)
    held = set(map(id, shards.parameters(shards.held)))
    assert 0 < len(held) < 6
    for p, old in zip(state.model.parameters(), before, strict=True):
        assert (p.flatten().tolist() != old) == (id(p) in held)
        assert (p in state.optimizers[0].state) == (id(p) in held)
    assert not state.tree()["optimizers"][0]["state"]


@pytest.mark.parametrize("late", [False, True])
def test_an_update_that_is_set_aside_is_undone_or_made_late(late: bool) -> None:
    state, shards = training()
    shards.place(plan_shards([frozenset()] * 2, shards.sizes), 0)
    for _ in range(2):
        update(state, shards)
        shards.applied()
    old = values(state), {shard: shards.shard(shard) for shard in shards.held}
    steps = [float(kept["step"]) for kept in state.optimizers[0].state.values()]
    update(state, shards)
    new = values(state)
    assert not shards.prepared
    shards.set_aside()
    assert shards.prepared
    assert values(state) == old[0]
    assert [float(kept["step"]) for kept in state.optimizers[0].state.values()] == steps
    if late:
        shards.apply_late()
        assert values(state) == new
        assert {float(kept["step"]) for kept in state.optimizers[0].state.values()} == {3.0}


def test_shards_that_another_member_sends_are_those_that_it_has() -> None:
    (one, given), (other, received) = training(), training()
    given.place(plan_shards([frozenset()], given.sizes), 0)
    update(one, given)
    for shard in given.held:
        received.load_shard(shard, given.shard(shard))
    assert received.held == given.held
    assert str(one.optimizers[0].state_dict()) == str(other.optimizers[0].state_dict())
    received.drop(received.held)
    assert not other.optimizers[0].state


def test_there_are_not_many_more_shards_than_a_checkpoint_may_have_files() -> None:
    _, shards = training(200)
    assert len(shards.sizes) <= 129
    assert max(shards.sizes) <= 2 * sum(shards.sizes) / 128 + 8 * 8 * 4
    assert len(shards.parameters(range(len(shards.sizes)))) == 400


@pytest.mark.parametrize("sharded", [False, True])
def test_a_checkpoint_of_another_division_is_not_taken_for_a_damaged_one(tmp_path: Path, sharded: bool) -> None:
    state, shards = training()
    shards.place(plan_shards([frozenset()], shards.sizes), 0)
    update(state, shards)
    whole: Checkpoints[Any] = Checkpoints(tmp_path, 30.0, print, WholeState())
    by_shard: Checkpoints[Any] = Checkpoints(tmp_path, 30.0, print, ByLayer(len(shards.sizes)))
    if sharded:
        by_shard.save_now(5, SavedLayers(state.tree(), {shard: shards.shard(shard) for shard in shards.held}))
        with pytest.raises(InputError, match="another division of the state"):
            whole.read_newest()
    else:
        whole.save_now(5, state.tree())
        assert isinstance(by_shard.read(5, [ByLayer.COMMON]), InputError)
    assert whole.newest_step() == 5
