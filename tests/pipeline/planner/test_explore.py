"""The exploration: against brute force, against its peers, with memory, mixed devices and slow links."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from offcut.errors import InputError
from offcut.pipeline.hardware import Device, Hardware, Link, homogeneous
from offcut.pipeline.layer_profile import Layer, LayerProfile
from offcut.pipeline.peers.bapipe import bapipe_plan
from offcut.pipeline.plan import plan_from_json
from offcut.pipeline.planner.candidates import CandidatePlan, make_candidate
from offcut.pipeline.planner.curve import planned_curve
from offcut.pipeline.planner.device_chain import DeviceChain
from offcut.pipeline.planner.explore import Explorer, evaluate
from offcut.pipeline.planner.problem import PlanningProblem
from offcut.pipeline.profile_file import read_profile
from offcut.pipeline.schedules import SCHEDULES


def random_profile(seed: int, layers: int) -> LayerProfile:
    draw = np.random.default_rng(seed)
    return LayerProfile(
        model="toy",
        micro_batches=(2,),
        layers=tuple(
            Layer(
                name=f"l{i}",
                forward_s=(float(draw.uniform(0.5, 2)),),
                backward_s=(float(draw.uniform(1, 4)),),
                cut_bytes=float(draw.integers(0, 5)),
                stored_bytes=float(draw.integers(1, 5)),
                parameter_bytes=float(draw.integers(0, 20)),
            )
            for i in range(layers)
        ),
    )


def problem(profile: LayerProfile, hardware: Hardware, m: int = 6, **more: object) -> PlanningProblem:
    size = profile.micro_batches[0]
    return PlanningProblem(profile=profile, hardware=hardware, batch=m * size, micro_batches=(size,), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(6))
def test_near_brute_force_and_above_the_bound(seed: int) -> None:
    """Every split, every replication, every schedule of the family, simulated: ours is within a few per cent of the
    best, and the bound is below it."""
    profile = random_profile(seed, 5)
    hardware = homogeneous(4, bandwidth_bytes_s=[4.0, 20.0, 1e3][seed % 3])
    task = problem(profile, hardware)
    found = Explorer(task).explore(4)
    device_chain = DeviceChain(profile, hardware, 2, {})
    best = np.inf
    for stages in range(1, 5):
        for cut in itertools.combinations(range(1, 5), stages - 1):
            for replicas in itertools.product(range(1, 5), repeat=stages):
                if sum(replicas) > 4:
                    continue
                for name in ("gpipe", "1f1b", "1f1b-so", "1f1b-link"):
                    made = make_candidate(task, device_chain, (0, *cut, 5), replicas, SCHEDULES[name])
                    assert isinstance(made, CandidatePlan)
                    best = min(best, evaluate(task, made).step_s)
    assert found.best is not None
    assert found.bound_s <= best * (1 + 1e-9)
    assert found.best.step_s <= best * 1.03
    if len(found.best.stages) == len(found.best.replicas):
        assert found.gap == pytest.approx(found.best.step_s / found.bound_s - 1, abs=1e-6)


def test_the_pareto_set_trades_time_against_memory() -> None:
    found = Explorer(problem(random_profile(1, 8), homogeneous(4, bandwidth_bytes_s=20.0), m=8)).explore(4)
    times = [plan.step_s for plan in found.plans]
    memory = [plan.memory_bytes for plan in found.plans]
    assert len(found.plans) > 1
    assert times == sorted(times)
    assert memory == sorted(memory, reverse=True)


def test_less_memory_gives_slower_plans_then_none_with_the_smallest_that_would_do() -> None:
    profile = random_profile(2, 8)
    free = Explorer(problem(profile, homogeneous(4, bandwidth_bytes_s=20.0), m=8)).explore(4)
    assert free.best is not None
    smallest = free.smallest_memory_bytes
    tight = Explorer(
        problem(profile, homogeneous(4, bandwidth_bytes_s=20.0, memory_bytes=smallest * 1.0001), m=8)
    ).explore(4)
    assert tight.best is not None
    assert tight.best.memory_bytes <= smallest * 1.0001
    assert tight.best.step_s >= free.best.step_s
    assert tight.best.schedule == "1f1b-link"
    assert tight.best.caps
    none = Explorer(problem(profile, homogeneous(4, bandwidth_bytes_s=20.0, memory_bytes=smallest * 0.99), m=8))
    findings = [none.explore(n) for n in (1, 2, 4)]
    assert all(found.best is None for found in findings)
    with pytest.raises(InputError, match=r"smallest memory per device that would do is"):
        planned_curve(findings)


def test_a_schedule_that_cannot_run_is_the_reason_and_not_the_memory() -> None:
    hardware = homogeneous(6, bandwidth_bytes_s=20.0, memory_bytes=1e9)
    task = problem(random_profile(1, 8), hardware, m=6, stages=6, schedules=("chimera-2", "interleaved"))
    with pytest.raises(InputError, match=r"no schedule can run .*chimera-2: it needs a multiple of 4 stages"):
        planned_curve([Explorer(task).explore(6)])


def test_mixed_devices_get_work_by_their_speed() -> None:
    profile = random_profile(3, 10)
    devices = (Device(kind="fast", speed=3.0), Device(kind="slow"), Device(kind="fast", speed=3.0), Device(kind="slow"))
    hardware = Hardware(devices=devices, link=Link(bandwidth_bytes_s=1e6))
    found = Explorer(problem(profile, hardware, m=24, stages=4)).explore(4)
    assert found.best is not None
    layers = [stage.end_layer - stage.first_layer for stage in found.best.stages]
    assert layers[0] > layers[1]
    assert layers[2] > layers[3]
    assert found.bound_s <= found.best.step_s


def test_the_cut_at_a_slow_hop_has_a_small_transfer() -> None:
    layers = tuple(
        Layer(
            name=str(i),
            forward_s=(1.0,),
            backward_s=(2.0,),
            cut_bytes=0.1 if i == 2 else 50.0,
            stored_bytes=1.0,
            parameter_bytes=0.0,
        )
        for i in range(6)
    )
    profile = LayerProfile(model="toy", micro_batches=(1,), layers=layers)
    slow = Link(bandwidth_bytes_s=1.0)
    hardware = replace(homogeneous(2, bandwidth_bytes_s=1e9), hops={0: slow})
    found = Explorer(problem(profile, hardware, m=8, stages=2)).explore(2)
    assert found.best is not None
    assert found.best.cuts == (0, 3, 6)


def test_without_overlap_transfers_cost_computing_time() -> None:
    profile = random_profile(4, 8)
    with_overlap = Explorer(problem(profile, homogeneous(4, bandwidth_bytes_s=20.0), stages=4)).explore(4)
    without = Explorer(problem(profile, homogeneous(4, bandwidth_bytes_s=20.0, overlap=False), stages=4)).explore(4)
    assert with_overlap.best is not None
    assert without.best is not None
    assert without.best.schedule in ("gpipe", "1f1b-sno")
    assert not without.best.overlap
    assert without.best.step_s > with_overlap.best.step_s
    assert without.best.timeline().step_s == without.best.step_s


def test_plans_come_back_from_json_and_simulate_to_the_same_step() -> None:
    found = Explorer(problem(random_profile(5, 8), homogeneous(4, bandwidth_bytes_s=20.0), m=8)).explore(4)
    for plan in found.plans:
        back = plan_from_json(plan.to_json())
        assert back == plan
        assert back.timeline().step_s == plan.step_s
    with pytest.raises(InputError, match="not a plan"):
        plan_from_json({})
    with pytest.raises(InputError, match="a field is missing"):
        plan_from_json({k: v for k, v in found.plans[0].to_json().items() if k != "batch"})
    with pytest.raises(InputError, match="unknown schedule"):
        plan_from_json({**found.plans[0].to_json(), "schedule": "x"})


def test_an_impossible_planning_problem_is_reported() -> None:
    profile = random_profile(6, 3)
    hardware = homogeneous(2, bandwidth_bytes_s=1.0)
    with pytest.raises(InputError, match="4 stages asked for, but toy has 3 layers"):
        problem(profile, hardware, stages=4)
    with pytest.raises(InputError, match=r"no micro-batch size \(2\) divides the batch of 7"):
        PlanningProblem(profile=profile, hardware=hardware, batch=7, micro_batches=(2,))
    with pytest.raises(InputError, match="unknown schedule 'x'"):
        problem(profile, hardware, schedules=("x",))
    with pytest.raises(InputError, match="3 devices were asked for, but the hardware describes 2"):
        Explorer(problem(profile, hardware)).explore(3)
    other = random_profile(6, 4)
    mixed = Hardware(devices=(Device(kind="a"), Device(kind="b")), link=hardware.link)
    with pytest.raises(InputError, match="device kind 'b' has 4 layers"):
        Explorer(problem(profile, mixed, kinds={"b": other}))


def test_the_curve_never_falls_and_names_the_plan_of_each_point(shared: Path) -> None:
    profile = read_profile(shared / "data" / "pipedream-profiles" / "resnet50.txt")
    explorer = Explorer(problem(profile, homogeneous(16, bandwidth_bytes_s=1.25e9), m=32))
    findings = [explorer.explore(n) for n in range(1, 17)]
    raw = [found.best.samples_per_s for found in findings if found.best]
    assert any(b < a for a, b in itertools.pairwise(raw)), "the raw curve falls somewhere, or this shows nothing"
    planned = planned_curve(findings)
    assert list(planned.curve.nodes) == list(range(17))
    assert all(b >= a for a, b in itertools.pairwise(planned.curve.rate))
    for n in range(1, 17):
        assert planned.plans[n].samples_per_s == planned.curve.rate_at(n)
        assert planned.plans[n].devices <= n


@pytest.mark.parametrize(("model", "family"), [("resnet50", "data parallel"), ("gnmt", "pipeline")])
def test_published_profiles_choose_as_bapipe_reports(shared: Path, model: str, family: str) -> None:
    """ResNet-50 falls back to data parallelism, GNMT becomes a pipeline; ours is never behind BaPipe's own steps."""
    profile = read_profile(shared / "data" / "pipedream-profiles" / f"{model}.txt")
    task = problem(profile, homogeneous(4, bandwidth_bytes_s=1.25e9), m=32)
    found, theirs = Explorer(task).explore(4), bapipe_plan(task, 4)
    assert found.best is not None
    assert theirs is not None
    assert found.best.family == theirs.family == family
    assert found.best.step_s <= theirs.step_s * (1 + 1e-9)
    assert "%" in found.certificate
    assert {row.family for row in found.rejected} >= {"data parallel" if family == "pipeline" else "pipeline"}
    assert all(row.reason for row in found.rejected)
