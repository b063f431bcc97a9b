"""Checkpoints of all kinds of jobs are in PyTorch's format; one that cannot be used is passed over for an older one."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from offcut.errors import InputError
from offcut.torch.pipeline.layer_state import LayerState
from offcut.torch.state import dcp_shards
from offcut.torch.state.checkpoint_layout import ByLayer, SavedLayers, WholeState
from offcut.torch.state.checkpoints import Checkpoints
from offcut.torch.state.training_state import TrainingState

WORKERS = ("n1#1:0", "n2#2:0", "n3#3:0")


def model(seed: int = 1, width: int = 6) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 1)
    )


LAYERS = 5


def trained(network: nn.Module, steps: int = 2) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        network(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return optimizer


def whole(network: nn.Module) -> TrainingState:
    return TrainingState(network, [trained(network)])


def layered(network: nn.Module) -> LayerState:
    state = LayerState(network, [trained(network)])
    state.buffers.copy_boundary()
    return state


def saved(state: LayerState, *layers: int) -> SavedLayers:
    return SavedLayers(state.common() if 0 in layers else None, {i: state.layer(i) for i in layers})


def save(path: Path, network: nn.Module, kind: str, step: int = 5) -> Path:
    """Save a checkpoint as three members do: each its part, in threads; then the first publishes it."""
    notes: list[str] = []
    if kind == "session":
        state = whole(network)
        members = [Checkpoints(path, 0.0, notes.append, WholeState()) for _ in WORKERS]
        shares: list[Any] = [state.tree()] * 3
    else:
        stages = layered(network)
        members = [Checkpoints(path, 0.0, notes.append, ByLayer(LAYERS)) for _ in WORKERS]
        shares = [saved(stages, 0, 1), saved(stages, 2, 3), saved(stages, 4)]
    for rank, member in enumerate(members):
        member.begin(step, 1, WORKERS, rank, lambda rank=rank: shares[rank])
    for member in members:
        member.finish_writing()
    assert members[0].publish(step)
    assert not notes
    return path / f"step-{step:010d}"


@pytest.mark.parametrize("kind", ["session", "pipeline"])
def test_a_plain_script_reads_the_model_by_torch_s_own_reader(tmp_path: Path, kind: str) -> None:
    network = model()
    directory = save(tmp_path, network, kind)
    plain = model(seed=2)
    state = {"model": plain.state_dict()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it is read in a single process
        dcp.load(state, checkpoint_id=directory)
    plain.load_state_dict(state["model"])
    for name, wanted in network.state_dict().items():
        assert torch.equal(plain.state_dict()[name], wanted), name


@pytest.mark.parametrize("kind", ["session", "pipeline"])
def test_torch_s_tool_makes_a_file_for_torch_load_of_it(tmp_path: Path, kind: str) -> None:
    network = model()
    directory = save(tmp_path / "checkpoints", network, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        dcp_to_torch_save(directory, tmp_path / "model.pt")
    found = torch.load(tmp_path / "model.pt", weights_only=True)
    assert found["model"].keys() == network.state_dict().keys()
    model(seed=3).load_state_dict(found["model"])
    name = "0.weight" if kind == "pipeline" else "state"
    assert name in found["optimizers"][0]


def test_layers_keep_their_values_whatever_the_stages_that_read_them(tmp_path: Path) -> None:
    """Three members with stages of 2, 2 and 1 layers wrote it; two with 1 and 4 go on."""
    network = model()
    save(tmp_path, network, "pipeline")
    wanted = {name: value.clone() for name, value in network.state_dict().items()}
    for stage in ((0,), (1, 2, 3, 4)):
        state = layered(model(seed=4))
        state.drop_layers(set(range(LAYERS)) - set(stage))
        pieces = [ByLayer.COMMON, *map(ByLayer.name, stage)]
        found = Checkpoints(tmp_path, 0.0, print, ByLayer(LAYERS)).read(5, pieces)
        assert isinstance(found, dict)
        for i in stage:
            state.load_layer(i, found[ByLayer.name(i)])
        for name, value in wanted.items():
            if int(name.partition(".")[0]) in stage:
                assert torch.equal(state.model.state_dict()[name], value), name


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file: Path) -> None:
    """Change a byte of the numbers, not of what is around them."""
    content = bytearray(file.read_bytes())
    place = content.index(torch.full((32,), 3.25).numpy().tobytes()) + 40
    content[place] ^= 0xFF
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
@pytest.mark.parametrize("kind", ["session", "pipeline"])
def test_a_checkpoint_with_a_damaged_file_is_passed_over(
    tmp_path: Path, kind: str, damage: Callable[[Path], None]
) -> None:
    network = model(width=32)
    save(tmp_path, network, kind, step=5)
    state = layered(network) if kind == "pipeline" else whole(network)
    with torch.no_grad():
        network[4].weight.fill_(3.25)
    notes: list[str] = []
    if isinstance(state, LayerState):
        by_layer = Checkpoints(tmp_path, 0.0, notes.append, ByLayer(LAYERS))
        by_layer.save_now(6, saved(state, *range(LAYERS)))
        (file,) = (tmp_path / "step-0000000006").glob("__layer-4.*")
    else:
        by_rank = Checkpoints(tmp_path, 0.0, notes.append, WholeState())
        by_rank.save_now(6, state.tree())
        file = tmp_path / "step-0000000006" / "__0_0.distcp"
    assert not notes
    damage(file)
    if kind == "session":
        found = by_rank.read_newest()
        assert found is not None
        assert "step-0000000006 cannot be read" in notes[0]
        return
    assert by_layer.read(6, ["layer-4"]) is None
    assert "step 6 cannot be read" in notes[0]
    assert isinstance(by_layer.read(by_layer.before(6), ["layer-4"]), dict)


def test_a_checkpoint_of_another_model_is_passed_over_for_an_older_one(tmp_path: Path) -> None:
    network = model()
    save(tmp_path, network, "session", step=5)
    notes: list[str] = []
    checkpoints = Checkpoints(tmp_path, 0.0, notes.append, WholeState())
    checkpoints.save_now(6, whole(model(width=7)).tree())
    state = whole(model(seed=5))
    found = checkpoints.read_newest(state.check_fits)
    assert found is not None
    state.load(found)
    assert torch.equal(state.model.state_dict()["4.weight"], network.state_dict()["4.weight"])
    assert "step-0000000006 is not used" in notes[0]
    assert "the state is of another model: its 0.weight has the shape (7, 4), this script's (6, 4)" in notes[0]


def test_if_all_are_of_another_model_the_job_fails_and_they_stay(tmp_path: Path) -> None:
    """To begin at the first step would delete what may be the only copy of a training."""
    save(tmp_path, model(width=7), "session")
    with pytest.raises(InputError, match="of another model"):
        Checkpoints(tmp_path, 0.0, print, WholeState()).read_newest(whole(model()).check_fits)
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000005"]
    save(tmp_path / "layers", model(width=7), "pipeline")
    state = layered(model())
    found = Checkpoints(tmp_path / "layers", 0.0, print, ByLayer(LAYERS)).read(
        5, ["layer-0"], lambda trees: state.check_layer(0, trees["layer-0"])
    )
    assert isinstance(found, InputError)


@pytest.mark.parametrize("kind", ["session", "pipeline"])
def test_a_checkpoint_of_an_earlier_version_gets_one_sentence(tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "step-0000000005"
    if kind == "pipeline":
        directory.mkdir()
        torch.save({}, directory / "common.pt")
        torch.save({}, directory / "layer-0.pt")
        with pytest.raises(InputError, match="was written by an earlier version of offcut"):
            dcp_shards.read(directory, ["layer-0"])
    else:
        tensors = {"skeleton": torch.zeros(3, dtype=torch.uint8), "0:model/0.weight": torch.zeros(4, 4)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            dcp.save(tensors, checkpoint_id=directory, no_dist=True)
        with pytest.raises(InputError, match="was written by an earlier version of offcut"):
            Checkpoints(tmp_path, 0.0, print, WholeState()).read_newest()


def test_a_layer_that_two_members_saved_is_there_once(tmp_path: Path) -> None:
    """Members that leave together save what they hold, which replicas of a stage hold both."""
    state = layered(model())
    members = [Checkpoints(tmp_path, 0.0, print, ByLayer(LAYERS)) for _ in range(2)]
    members[0].save_now(7, saved(state, 0, 1, 2))
    members[1].save_now(7, saved(state, 2, 3, 4))
    directory = tmp_path / "step-0000000007"
    assert len(list(directory.glob("__layer-2.*"))) == 1
    assert sorted(path.name for path in directory.iterdir() if path.suffix != ".distcp") == [
        ".metadata",
        "checksums.json",
    ]


def test_two_members_that_see_a_complete_checkpoint_at_once_publish_it_once(tmp_path: Path) -> None:
    state = layered(model())
    first, second = (Checkpoints(tmp_path, 0.0, print, ByLayer(LAYERS)) for _ in range(2))
    first.save_now(7, saved(state, 0, 1, 2))
    place = first.directory.unpublished(7, 0)
    for share in ByLayer(LAYERS).shares(saved(state, 3, 4), 0, 1):
        dcp_shards.write(place, share)
    assert second.directory.claim(place) is not None
    notes: list[str] = []
    first._on_problem = notes.append
    assert not first.publish(7)
    assert not notes
    assert first.newest_step() == -1, "the other one is about to give it its name"


def test_records_say_what_is_in_a_share(tmp_path: Path) -> None:
    share = dcp_shards.share_of_piece("layer-0", {"model": {"weight": torch.zeros(2, 3)}, "note": "plain"})
    dcp_shards.write(tmp_path, share)
    entries = {entry["name"]: entry for entry in json.loads((tmp_path / "share-layer-0.json").read_text())}
    assert entries.keys() == {"offcut.layer-0", "model.weight"}
    assert (entries["model.weight"]["shape"], entries["model.weight"]["dtype"]) == ([2, 3], "float32")
    assert dcp_shards.read(tmp_path, ["layer-0"])["layer-0"]["note"] == "plain"
