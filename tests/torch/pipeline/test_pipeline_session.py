"""A pipeline session without a controller, and the pieces that keep its state."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pipeline_job import plan
from torch import nn
from torch.utils.data import TensorDataset

from offcut.errors import InputError
from offcut.pipeline.plan_set import PlanSet
from offcut.torch.pipeline.layer_state import LayerState
from offcut.torch.pipeline.session import PipelineSession
from offcut.torch.state.checkpoint_layout import ByLayer, SavedLayers
from offcut.torch.state.checkpoints import Checkpoints
from offcut.torch.state.cursor import Cursor
from offcut.torch.step.sampler import Sampler

LAYERS, SAMPLES = 6, 100
WORKERS = ("n1#1:0", "n2#2:0")


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Sequential(nn.Linear(5, 5), nn.Tanh()) for _ in range(LAYERS - 1)), nn.Linear(5, 1))


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(SAMPLES, 5, generator=generator)
    return TensorDataset(x, x.square().sum(1, keepdim=True))


def train(state: LayerState, steps: int) -> None:
    inputs, targets = data().tensors
    for _ in range(steps):
        for item in state.optimizers:
            item.zero_grad()
        nn.functional.mse_loss(state.model(inputs), targets).backward()
        state.update(None, 0.0)


def test_alone_it_is_a_plain_training_loop_with_short_last_batches():
    """100 samples in batches of 48: the last has 4, one in each of its micro-batches."""
    trained, seen = model(), []
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    session = PipelineSession(
        trained, optimizer, data(), loss_fn=nn.functional.mse_loss, plans=PlanSet((plan("1"),)), clip_norm=0.5, seed=7
    )
    with session:
        for epoch in session.epochs(3):
            for batch in epoch:
                assert session.step()
                seen.append((len(batch.indices), session.loss))
    plain, sampler, cursor = model(), Sampler(SAMPLES, 7), Cursor()
    optimizer, (inputs, targets) = torch.optim.AdamW(plain.parameters(), lr=1e-2), data().tensors
    for count, loss in seen:
        batch = sampler.batch(cursor, 48)
        cursor = sampler.after(cursor, 48)
        if sampler.done(cursor):
            cursor = Cursor(cursor.epoch + 1, 0)
        optimizer.zero_grad()
        expected = nn.functional.mse_loss(plain(inputs[batch]), targets[batch])
        expected.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        optimizer.step()
        assert count == len(batch)
        assert loss == pytest.approx(float(expected.detach()), abs=1e-12)
    assert [count for count, _ in seen] == [48, 48, 4] * 3


@pytest.mark.parametrize("make", [lambda p: torch.optim.AdamW(p, lr=0.1), lambda p: torch.optim.SGD(p, 0.1, 0.9)])
def test_a_layer_that_moved_away_and_back_trains_on_unchanged(make):
    first, second = (LayerState(network, [make(network.parameters())]) for network in (model(), model()))
    train(first, 3)
    train(second, 5)
    tree = {i: first.layer(i) for i in range(LAYERS)}
    second.drop_layers(range(LAYERS))
    assert sum(p.numel() for p in second.model.parameters()) == 0
    assert not second.optimizers[0].state
    for i, layer in tree.items():
        second.load_layer(
            i, torch.utils._pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, layer)
        )
    train(first, 2)
    train(second, 2)
    for mine, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_a_checkpoint_gets_its_name_when_its_last_layer_is_there(tmp_path: Path):
    problems: list[str] = []
    state = LayerState(model(), [])
    stages = [Checkpoints(tmp_path, 30.0, problems.append, ByLayer(LAYERS)) for _ in range(2)]
    stages[0].save_now(12, SavedLayers(state.common(), {i: state.layer(i) for i in range(4)}))
    assert stages[0].newest_step() == -1
    assert stages[1].has(12, layers(0, 1, 2, 3)), "but what is there can be read"
    assert not stages[1].has(12, layers(4))
    stages[1].save_now(12, SavedLayers(state.common(), {i: state.layer(i) for i in (4, 5)}))
    assert stages[0].newest_step() == 12
    assert torch.equal(stages[0].piece(12, "layer-5")["model"]["5.weight"], state.layer(5)["model"]["5.weight"])
    for step in (13, 14):
        stages[0].save_now(step, SavedLayers(state.common(), {i: state.layer(i) for i in range(LAYERS)}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0000000013", "step-0000000014"]
    assert not problems


def layers(*numbers: int) -> list[str]:
    return [ByLayer.name(i) for i in numbers]


def saved(state: LayerState, *layers: int) -> SavedLayers:
    return SavedLayers(state.common(), {i: state.layer(i) for i in layers})


def test_after_a_fallback_no_layer_of_a_later_step_is_read_or_published(tmp_path: Path) -> None:
    """Some members had written their layers of step 9 when all went back to step 4, and trained on from there."""
    before, after = LayerState(model(), []), LayerState(model(), [])
    for p in before.model.parameters():
        p.data.add_(1.0)
    checkpoints = Checkpoints(tmp_path, 30.0, print, ByLayer(LAYERS))
    checkpoints.members_changed(1, ())
    checkpoints.save_now(4, saved(after, *range(LAYERS)))
    checkpoints.save_now(9, saved(before, 0, 1, 2))
    checkpoints.members_changed(2, ())
    # A member that is gone, or cut off, still writes; then all go back, and what it writes next comes too late.
    checkpoints.go_back(4, first=True)
    assert not checkpoints.has(9, layers(0))
    other = Checkpoints(tmp_path, 30.0, print, ByLayer(LAYERS))
    other.begin(9, 1, WORKERS, 1, lambda: saved(before, 0, 1, 2))
    other.finish_writing()
    checkpoints.save_now(9, saved(after, 3, 4, 5))
    assert checkpoints.newest_step() == 4, "layers of two generations do not make a checkpoint"
    checkpoints.save_now(9, saved(after, 0, 1, 2))
    assert checkpoints.newest_step() == 9
    weight = checkpoints.piece(9, "layer-0")["model"]["0.0.weight"]
    assert torch.equal(weight, after.layer(0)["model"]["0.0.weight"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0000000004", "step-0000000009"]


def test_layers_that_members_of_two_generations_saved_when_they_left_are_found(tmp_path: Path) -> None:
    state = LayerState(model(), [])
    checkpoints = Checkpoints(tmp_path, 30.0, print, ByLayer(LAYERS))
    for generation, layer in ((1, 0), (2, 1)):
        checkpoints.members_changed(generation, ())
        checkpoints.save_now(5, saved(state, layer))
    assert checkpoints.has(5, layers(0, 1))
    assert checkpoints.piece(5, "layer-0")["model"].keys() == state.layer(0)["model"].keys()


def test_a_state_that_was_received_is_not_that_of_the_loop_that_was_left_before() -> None:
    mine, newer = LayerState(model(), []), LayerState(model(), [])
    mine.cursor = Cursor(1, SAMPLES)
    mine.leave_loop(Cursor(1, SAMPLES))
    newer.cursor = Cursor(3, 48)
    mine.load_common(newer.common())
    assert (mine.position, mine.next_sample) == (3, Cursor(3, 48))


def test_a_state_with_other_registered_objects_is_refused_before_anything_has_changed() -> None:
    mine, other = LayerState(model(), []), LayerState(model(), [])
    other.registered.append(torch.optim.SGD(other.model.parameters(), lr=0.1))
    other.step = 5
    with pytest.raises(InputError, match="the state has 1 registered objects"):
        mine.load_common(other.common())
    assert mine.step == 0


def test_a_checkpoint_of_an_unstable_step_is_not_published(tmp_path: Path):
    state = LayerState(model(), [])
    parts = Checkpoints(tmp_path, 30.0, lambda text: None, ByLayer(LAYERS))
    parts.begin(5, 1, ("n1#1:0",), 0, lambda: saved(state, *range(LAYERS)))
    parts.finish_writing()
    assert not parts.publish(4)
    assert parts.publish(5)


def test_an_invalid_pipeline_job_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("OFFCUT_PLANS", raising=False)
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    mse = nn.functional.mse_loss
    with pytest.raises(InputError, match="no plans"):
        PipelineSession(network, optimizer, data(), loss_fn=mse)
    with pytest.raises(InputError, match="cannot be read"):
        PipelineSession(network, optimizer, data(), loss_fn=mse, plans=tmp_path / "none.json")
    longer = nn.Sequential(network, nn.Linear(1, 1))
    with pytest.raises(InputError, match="the plans cover 6 layers, the model has 2"):
        PipelineSession(longer, optimizer, data(), loss_fn=mse, plans=PlanSet((plan("1"),)))
    other = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    with pytest.raises(InputError, match="belong to no layer"):
        PipelineSession(network, other, data(), loss_fn=mse, plans=PlanSet((plan("1"),)))
