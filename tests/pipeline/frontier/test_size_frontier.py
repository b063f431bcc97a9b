"""Strategies of layers, pipelines beside them, and the scaling curve of the fastest that fit."""

from __future__ import annotations

import pytest

from offcut.errors import InputError
from offcut.pipeline.frontier.layer_strategies import layers_frontier
from offcut.pipeline.frontier.size_frontier import FrontierExplorer, frontier_curve, recomputed_profile
from offcut.pipeline.hardware import Hardware, homogeneous
from offcut.pipeline.layer_profile import Layer, LayerProfile
from offcut.pipeline.planner.explore import Explorer
from offcut.pipeline.planner.problem import PlanningProblem


def profile(layers: int, *, cut: float = 1.0, stored: float = 10.0, parameters: float = 4.0) -> LayerProfile:
    """Equal layers with F = 1 and B = 2."""
    layer = Layer(
        name="l", forward_s=(1.0,), backward_s=(2.0,), cut_bytes=cut, stored_bytes=stored, parameter_bytes=parameters
    )
    return LayerProfile(model="toy", micro_batches=(1,), layers=(layer,) * layers)


def points(model: LayerProfile, devices: int, micro_batches: int, hardware: Hardware) -> dict[str, tuple[float, float]]:
    """(memory, time) of every point of the frontier, by its strategies."""
    found = layers_frontier(model.chain(1), devices=devices, micro_batches=micro_batches, hardware=hardware).frontier
    names = [
        "; ".join(f"{name} {layers}" for name, layers in found.choices(k))  # type: ignore[misc]
        for k in range(len(found))
    ]
    return dict(zip(names, found.points(), strict=True))


def test_recomputed_runs_on_one_device() -> None:
    """16 layers that store 10 each: runs of 1, 2, 4, ... layers keep 1 at their begin and need room for one run.

    The first run begins with the batch, which costs nothing.
    """
    found = points(profile(16), 1, 3, homogeneous(1, bandwidth_bytes_s=1.0))
    state = 2 * 4.0 * 16
    assert found["; ".join(["as is 1"] * 16)] == (state + 160, 3 * 48)
    leanest = min(found.values())
    assert leanest == (state + min(16 / n - 1 + 10 * n for n in (1, 2, 4, 8, 16)), 3 * 64)
    assert all(3 * 48 <= seconds <= 3 * 64 for _, seconds in found.values())


def test_replicas_are_data_parallelism() -> None:
    """Where all layers are replicated the step is that of the planner's data parallelism."""
    hardware = homogeneous(4, bandwidth_bytes_s=100.0)
    model = profile(5)
    found = points(model, 4, 8, hardware)
    task = PlanningProblem(profile=model, hardware=hardware, batch=8, micro_batches=(1,))
    plan = next(plan for plan in Explorer(task).explore(4).plans if plan.family == "data parallel")
    memory, seconds = found["; ".join(["replicate 1"] * 5)]
    assert seconds == pytest.approx(plan.step_s)
    assert memory == pytest.approx(plan.memory_bytes)


def test_one_layer_on_two_devices() -> None:
    """4 rounds, 100 bytes/s, 40 bytes of parameters."""
    found = points(profile(1, parameters=40.0), 2, 8, homogeneous(2, bandwidth_bytes_s=100.0))
    # Half of the weights, and a single layer sends nothing of its input and output: nothing beats that.
    assert found == {
        "tensor split 1-D 1": (40 + 10, pytest.approx(4 * 3)),
    }


def test_a_tensor_split_sends_its_output_and_the_gradient_of_its_input() -> None:
    """Two layers split in one dimension on 2 devices: 2 (P - 1) / P of 2 x 6 bytes, once in each direction."""
    found = points(profile(2, cut=6.0, parameters=400.0), 2, 2, homogeneous(2, bandwidth_bytes_s=1e3))
    memory, seconds = found["tensor split 1-D 1; tensor split 1-D 1"]
    assert seconds == pytest.approx(2 * 3 + 2 * 12 / 1e3)
    # Half of the state, what the layers store, and the second one's input whole: 6 bytes of the other device's.
    assert memory == pytest.approx(2 * 400 + 2 * 10 + 6)


def test_moving_between_layouts_is_paid_for() -> None:
    """A replicated layer after a whole one gathers the gradient: 6 bytes of the other device, over 1 byte/s."""
    found = points(profile(2, cut=6.0, parameters=0.0, stored=1.0), 2, 2, homogeneous(2, bandwidth_bytes_s=1.0))
    assert found["replicate 1; replicate 1"][1] == pytest.approx(6.0)
    assert not any("replicate" in name and "split" in name for name in found)


@pytest.fixture(scope="module")
def task() -> PlanningProblem:
    return PlanningProblem(
        profile=profile(8, parameters=20.0), batch=8, micro_batches=(1,),
        hardware=homogeneous(4, bandwidth_bytes_s=50.0, memory_bytes=150.0),
    )  # fmt: skip


def test_no_point_beats_another_and_none_is_slower_than_the_planners(task: PlanningProblem) -> None:
    explorer = FrontierExplorer(task)
    for devices in (1, 2, 4):
        plans = Explorer(task).explore(devices).plans
        frontier = explorer.frontier(devices, plans)
        memory = [point.memory_bytes for point in frontier.points]
        assert memory == sorted(memory)
        seconds = [point.step_s for point in frontier.points]
        assert seconds == sorted(seconds, reverse=True)
        for plan in plans:
            assert any(p.memory_bytes <= plan.memory_bytes and p.step_s <= plan.step_s for p in frontier.points)
        assert frontier == explorer.frontier(devices)
        assert frontier.to_json()["points"][0]["memory_bytes"] == memory[0]


def test_the_curve_is_the_fastest_point_that_fits_at_every_size(task: PlanningProblem) -> None:
    explorer = FrontierExplorer(task)
    frontiers = [explorer.frontier(n) for n in (1, 2, 3, 4)]
    assert frontiers[0].fastest is None, "one device has not the memory for 320 bytes of state"
    curve = frontier_curve(frontiers)
    rates = dict(zip(curve.nodes, curve.rate, strict=True))
    for frontier in frontiers[1:]:
        best = max((8 / p.step_s for p in frontier.points if p.memory_bytes <= 150.0), default=0.0)
        if frontier.devices in rates:
            assert rates[frontier.devices] >= best
    assert list(curve.rate) == sorted(curve.rate)
    assert max(curve.rate) > 0
    with pytest.raises(InputError, match="no strategy fits"):
        frontier_curve(frontiers[:1])


def test_a_recomputed_pipeline_keeps_inputs_and_one_micro_batch() -> None:
    """Two stages of 4 layers: the first keeps its inputs, which are the batch, and 40 bytes while it recomputes."""
    model = profile(8, parameters=0.0)
    again = recomputed_profile(model).layers[0]
    assert (again.forward_s, again.backward_s, again.stored_bytes) == ((1.0,), (3.0,), 0.0)
    task = PlanningProblem(
        profile=model, hardware=homogeneous(2, bandwidth_bytes_s=1e9), batch=8, micro_batches=(1,), stages=2,
        schedules=("1f1b",),
    )  # fmt: skip
    found = list(FrontierExplorer(task)._recomputed_pipelines(2))
    plan = next(point for point in found if point.label.startswith("1f1b 2 stages"))
    assert plan.memory_bytes == pytest.approx(40 + 1)
    assert plan.step_s == pytest.approx((8 + 1) * 16, rel=1e-6)
    assert not plan.runs
