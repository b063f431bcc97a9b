"""Reading layer profiles: offcut's JSON and PipeDream's graph files."""

from __future__ import annotations

from pathlib import Path

import pytest

from offcut.errors import InputError
from offcut.pipeline.layer_profile import Layer, LayerProfile, from_json, to_json
from offcut.pipeline.pipedream_graph import parse_graph
from offcut.pipeline.profile_file import read_profile

NODE = "node{} -- {} -- forward_compute_time={}, backward_compute_time={}, activation_size={}, parameter_size={}"


def graph(*lines: str) -> LayerProfile:
    return parse_graph("\n".join(lines), source="g.txt", model="toy", micro_batch=2)


def diamond() -> tuple[str, ...]:
    """in -> 2 -> 3 -> 5, 2 -> 4 -> 5: a branch, ids out of order, one list of sizes."""
    return (
        NODE.format(1, "Input0", 100.0, 0.0, 50.0, 0.0),
        NODE.format(2, "Linear", 1.0, 2.0, 8.0, 4.0),
        NODE.format(5, "Add", 0.5, 0.5, 8.0, 0.0),
        NODE.format(3, "Conv", 2.0, 3.0, "[6.0; 2.0]", 16.0),
        NODE.format(4, "Conv", 1.0, 1.0, 4.0, 8.0),
        "\tnode1 -- node2",
        "\tnode2 -- node3",
        "\tnode2 -- node4",
        "\tnode3 -- node5",
        "\tnode4 -- node5",
    )


def test_branches_fold_into_a_chain_with_the_bytes_that_cross() -> None:
    profile = graph(*diamond())
    assert [layer.forward_s[0] for layer in profile.layers] == [1e-3, 2e-3, 1e-3, 0.5e-3]
    # After node2 one tensor; after node3 both its own and node2's, which node4 still needs; then node3's and node4's.
    assert [2 * layer.cut_bytes for layer in profile.layers] == [8, 16, 12, 0]
    assert [layer.skips for layer in profile.layers] == [(), ("node2", "node3"), ("node3", "node4"), ()]
    assert [2 * layer.stored_bytes for layer in profile.layers] == [8, 8, 4, 8]


def test_input_nodes_are_dropped_with_the_data_loading_that_they_hold() -> None:
    assert graph(*diamond()).chain(2).total_s == pytest.approx(11e-3)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((*diamond(), "\tnode5 -- node2"), r"cycle.*node2 \(line 2\)"),
        ((NODE.format(1, "A", -1.0, 0.0, 0.0, 0.0),), r"line 1: forward_compute_time is -1.0"),
        ((NODE.format(1, "A", "x", 0.0, 0.0, 0.0),), r"line 1: forward_compute_time is 'x'"),
        ((NODE.format(1, "A", "nan", 0.0, 0.0, 0.0),), r"forward_compute_time is nan"),
        ((NODE.format(1, "A", 1.0, 0.0, 0.0, 0.0), "\tnode1 -- node9"), r"line 2: edge to node9"),
        (("hello",), r"line 1: neither a node nor an edge"),
        ((), r"no nodes"),
        ((NODE.format(1, "A", 0.0, 0.0, 0.0, 0.0),), r"all times are 0"),
    ],
)
def test_invalid_graph_files_are_reported_with_the_line(lines: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        graph(*lines)


def test_an_unknown_graph_must_say_its_batch() -> None:
    with pytest.raises(InputError, match="does not say the batch size"):
        parse_graph("\n".join(diamond()), source="g.txt", model="toy")


@pytest.mark.parametrize(
    ("model", "batch", "total_s", "parameter_mb"),
    [("vgg16", 128, 0.672535, 553.43), ("resnet50", 128, 0.443419, 102.23), ("alexnet", 256, 0.085321, 244.40)],
)
def test_published_profiles(shared: Path, model: str, batch: int, total_s: float, parameter_mb: float) -> None:
    profile = read_profile(shared / "data" / "pipedream-profiles" / f"{model}.txt")
    assert profile.micro_batches == (batch,)
    chain = profile.chain(batch)
    assert chain.total_s == pytest.approx(total_s, rel=1e-4)
    assert chain.parameter_bytes.sum() / 1e6 == pytest.approx(parameter_mb, rel=1e-4)


def toy() -> LayerProfile:
    return LayerProfile(
        model="toy",
        micro_batches=(2, 4),
        layers=(
            Layer(
                name="a", forward_s=(1.0, 3.0), backward_s=(2.0, 4.0), weight_grad_s=(0.5, 1.0), cut_bytes=10.0,
                stored_bytes=20.0, parameter_bytes=30.0, skips=("x", "y"), spread=0.1,
            ),
            Layer(
                name="b", forward_s=(1.0, 1.0), backward_s=(1.0, 1.0), weight_grad_s=(0.5, 0.5), cut_bytes=0.0,
                stored_bytes=1.0, parameter_bytes=2.0,
            ),
        ),
    )  # fmt: skip


def test_json_round_trip() -> None:
    assert from_json(to_json(toy())) == toy()


def test_times_are_interpolated_between_sizes_and_proportional_beyond() -> None:
    profile = toy()
    assert profile.chain(3).forward_s[0] == 2.0
    assert profile.chain(1).forward_s[0] == 0.5
    assert profile.chain(8).forward_s[0] == 6.0
    assert profile.chain(4).cut_bytes.tolist() == [0, 40, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "not a layer profile"),
        ({"version": 9}, "format version 9"),
        ({"layers": 3}, '"layers" is not a list'),
        ({"layers": []}, "no layers"),
        ({"layers": [3]}, "layer 0: not an object"),
        ({"micro_batches": [4, 2]}, r"micro-batch sizes \[4, 2\]"),
        ({"micro_batches": [1.5, 2]}, '"micro_batches"'),
    ],
)
def test_invalid_profile_documents_are_reported_with_the_field(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_json({**to_json(toy()), **change})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("forward_s", [1.0], "layer 0 .a.: forward_s has 1 numbers"),
        ("forward_s", [1.0, -1.0], "layer 0 .a.: forward_s is -1.0"),
        ("forward_s", "fast", "must be a list of numbers"),
        ("parameter_bytes", None, 'layer 0: "parameter_bytes" is None'),
        ("parameter_bytes", -1, "parameter_bytes is -1"),
    ],
)
def test_invalid_layers_are_reported_with_the_field(field: str, value: object, message: str) -> None:
    document = to_json(toy())
    document["layers"][0][field] = value
    with pytest.raises(InputError, match=message):
        from_json(document)


def test_hardware_files_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_profile(tmp_path / "none.json")
    (tmp_path / "broken.json").write_text("{\n,")
    with pytest.raises(InputError, match="line 2: not JSON"):
        read_profile(tmp_path / "broken.json")
