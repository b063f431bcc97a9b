"""Chimera against the tables that the authors' generator makes, and in the planner."""

from __future__ import annotations

import numpy as np
import pytest

from offcut.pipeline.hardware import Device, Hardware, Link, homogeneous
from offcut.pipeline.layer_profile import Layer, LayerProfile
from offcut.pipeline.planner.device_chain import DeviceChain
from offcut.pipeline.planner.explore import Explorer
from offcut.pipeline.planner.problem import PlanningProblem
from offcut.pipeline.schedules import SCHEDULES, Shape, chimera
from offcut.pipeline.simulator import simulate
from offcut.pipeline.stage_costs import plain_costs


@pytest.mark.parametrize(
    ("ranks", "pipelines", "micro_batches", "slots", "idle"),
    [(4, 2, 4, 10, 2), (8, 2, 8, 22, 6), (4, 2, 8, 18, 2), (8, 4, 8, 18, 2)],
)
def test_slots_and_idle_slots_of_the_generators_tables(
    ranks: int, pipelines: int, micro_batches: int, slots: int, idle: int
) -> None:
    schedule = chimera(pipelines // 2)
    shape = Shape(ranks=ranks, micro_batches=micro_batches)
    assert not schedule.refuses(shape)
    run = simulate(schedule.program(shape), plain_costs([1.0] * ranks, [1.0] * ranks))
    assert run.step_s == slots
    assert (slots - run.busy_s == idle).all()
    assert (run.held.sum(1) == pipelines).all()
    assert (run.held.sum(0) == pipelines).all()


def test_the_order_on_four_ranks_is_the_generators() -> None:
    """Its table by columns; d and u are the pipelines, f and b forward and backward."""
    table = ("df df uf ub uf ub db db", "df uf df uf ub db ub db", "uf df uf df db ub db ub", "uf uf df db df db ub ub")
    program = SCHEDULES["chimera"].program(Shape(ranks=4, micro_batches=4))
    for rank, column in enumerate(table):
        assert " ".join("du"[i % 2] + "fb"[kind] for kind, _, i in program.lane(rank)) == column


def test_every_stage_of_f_pairs_is_on_2_f_ranks() -> None:
    for pairs, ranks in ((1, 4), (2, 8), (4, 16)):
        holders = chimera(pairs).program(Shape(ranks=ranks, micro_batches=ranks)).holders()
        assert all(len(on) == 2 * pairs for on in holders)


def test_shapes_that_do_not_divide_are_refused() -> None:
    assert "multiple of 4 stages" in chimera(2).refuses(Shape(ranks=6, micro_batches=6))
    assert "multiple of its 8 stages" in chimera(2).refuses(Shape(ranks=8, micro_batches=12))
    assert "even number of stages" in chimera(1).refuses(Shape(ranks=3, micro_batches=3))


def even_profile(layers: int) -> LayerProfile:
    layer = Layer(name="l", forward_s=(1.0,), backward_s=(1.0,), cut_bytes=1e-6, stored_bytes=1.0, parameter_bytes=10.0)
    return LayerProfile(model="toy", micro_batches=(1,), layers=(layer,) * layers)


def test_the_planner_counts_2_f_times_the_weights() -> None:
    hardware = homogeneous(8, bandwidth_bytes_s=1e9)
    task = PlanningProblem(
        profile=even_profile(8), hardware=hardware, batch=8, micro_batches=(1,), schedules=("chimera-2",), stages=8
    )
    plan = Explorer(task).explore(8).best
    assert plan is not None
    assert plan.step_s == pytest.approx(18, abs=1e-3)
    state = 2.0 * 10.0 * 4
    held = np.array(plan.peak_in_flight)
    assert plan.peak_bytes == pytest.approx((state + held).tolist(), abs=1e-3)


def test_a_copy_on_a_slow_device_or_behind_a_slow_link_slows_the_stage() -> None:
    """Stage 0 has its copies on ranks 0 and 3; rank 3 is half as fast and behind a slow hop."""
    profile = even_profile(4)
    devices = (*(Device(kind="fast"),) * 3, Device(kind="slow", speed=0.5))
    slow = Link(bandwidth_bytes_s=1.0)
    hardware = Hardware(devices=devices, link=Link(bandwidth_bytes_s=1e9), hops={2: slow})
    costs = DeviceChain(profile, hardware, 1, {}).costs((0, 1, 2, 3, 4), (1,) * 4, SCHEDULES["chimera"])
    assert costs.forward_s.tolist() == [2.0] * 4
    assert costs.sync_s[0] == pytest.approx(10.0)
    assert costs.hop_s == pytest.approx([1e-6] * 3)
