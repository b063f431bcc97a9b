"""Schedules on a V of two stages per rank: their memory, their shapes, and how the planner places their stages."""

from __future__ import annotations

import pytest

from offcut.pipeline.hardware import Hardware, Link, homogeneous
from offcut.pipeline.layer_profile import Layer, LayerProfile
from offcut.pipeline.planner.device_chain import DeviceChain
from offcut.pipeline.planner.explore import Explorer
from offcut.pipeline.planner.problem import PlanningProblem
from offcut.pipeline.schedules import SCHEDULES, Shape
from offcut.pipeline.simulator import simulate
from offcut.pipeline.stage_costs import plain_costs

V_SCHEDULES = ("zb-v", "v-half", "v-min", "dualpipe-v")


def even_profile(layers: int) -> LayerProfile:
    """Layers with F = I = W = 1 and a kilobyte of activations."""
    layer = Layer(
        name="l", forward_s=(1.0,), backward_s=(2.0,), weight_grad_s=(1.0,),
        cut_bytes=1e-6, stored_bytes=1000.0, parameter_bytes=0.0,
    )  # fmt: skip
    return LayerProfile(model="toy", micro_batches=(1,), layers=(layer,) * layers)


@pytest.mark.parametrize("name", V_SCHEDULES)
def test_the_first_and_the_last_stage_are_on_one_rank(name: str) -> None:
    holders = SCHEDULES[name].program(Shape(ranks=4, micro_batches=8, chunks=2)).holders()
    assert holders == [[0], [1], [2], [3], [3], [2], [1], [0]]


def test_memory_against_1f1b() -> None:
    """ZB-V keeps what rank 0 of 1F1B keeps, on every rank; V-Half and V-Min a half and a third, and a few stages."""
    p = 16
    shape, costs = Shape(ranks=p, micro_batches=64, chunks=2), plain_costs([1.0] * 2 * p, [2.0] * 2 * p)
    most = {name: simulate(SCHEDULES[name].program(shape), costs).peak_bytes.max() for name in V_SCHEDULES}
    whole = 2 * p
    assert most["zb-v"] == whole
    assert most["dualpipe-v"] == whole + 1
    assert most["v-half"] == whole / 2 + 3
    assert most["v-min"] <= whole / 3 + 3


def test_shapes_that_a_v_cannot_have_are_refused() -> None:
    for name in V_SCHEDULES:
        assert "at least two ranks" in SCHEDULES[name].refuses(Shape(ranks=1, micro_batches=8))
        assert "unequal" in SCHEDULES[name].refuses(Shape(ranks=2, micro_batches=8, replicas=(1, 2)))
    assert "micro-batches as stages, 8" in SCHEDULES["dualpipe-v"].refuses(Shape(ranks=4, micro_batches=7))


def test_no_transfer_where_the_v_turns_and_hops_by_their_places() -> None:
    slow = Link(bandwidth_bytes_s=0.5)
    hardware = Hardware(
        devices=homogeneous(3, bandwidth_bytes_s=1.0).devices, link=Link(bandwidth_bytes_s=1.0), hops={0: slow}
    )
    profile = LayerProfile(
        model="toy",
        micro_batches=(1,),
        layers=tuple(
            Layer(
                name="l", forward_s=(1.0,), backward_s=(2.0,), cut_bytes=1.0, stored_bytes=0.0, parameter_bytes=float(i)
            )
            for i in range(6)
        ),
    )
    device_chain = DeviceChain(profile, hardware, 1, {})
    costs = device_chain.costs(tuple(range(7)), (1, 1, 1), SCHEDULES["zb-v"])
    assert costs.hop_s.tolist() == [2.0, 1.0, 0.0, 1.0, 2.0]
    interleaved = device_chain.costs(tuple(range(7)), (1, 1, 1), SCHEDULES["interleaved"])
    assert interleaved.hop_s.tolist() == [2.0, 1.0, 1.0, 2.0, 1.0]


@pytest.mark.parametrize("name", V_SCHEDULES)
def test_the_planner_finds_plans_with_the_schedules_step(name: str) -> None:
    task = PlanningProblem(
        profile=even_profile(8), hardware=homogeneous(4, bandwidth_bytes_s=1e9), batch=16, micro_batches=(1,),
        schedules=(name,), stages=4,
    )  # fmt: skip
    plan = Explorer(task).explore(4).best
    assert plan is not None
    assert [stage.place for stage in plan.stages] == [0, 1, 2, 3, 3, 2, 1, 0]
    bubble = {"zb-v": 3, "v-half": 8, "v-min": 11, "dualpipe-v": 3}[name]
    assert plan.step_s == pytest.approx(6 * 16 + bubble, abs=1e-3)
    assert plan.timeline().step_s == plan.step_s


def test_v_half_fits_where_zb_v_does_not() -> None:
    def explore(*schedules: str, memory_bytes: float) -> str | None:
        task = PlanningProblem(
            profile=even_profile(16), hardware=homogeneous(8, bandwidth_bytes_s=1e9, memory_bytes=memory_bytes),
            batch=32, micro_batches=(1,), schedules=schedules, stages=8,
        )  # fmt: skip
        best = Explorer(task).explore(8).best
        return best.schedule if best else None

    assert explore("zb-v", "v-half", memory_bytes=17e3) == "zb-v"
    assert explore("zb-v", "v-half", memory_bytes=13e3) == "v-half"
