"""Schedules and their simulator: closed forms, and properties that hold for any costs of stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.errors import InputError
from offcut.pipeline.peers.closed_forms import checks
from offcut.pipeline.planner.bound import plan_bound
from offcut.pipeline.program import B, F, I, W, from_lanes
from offcut.pipeline.schedules import SCHEDULES, Shape, link_depths, schedule_named
from offcut.pipeline.simulator import DeadlockError, simulate
from offcut.pipeline.stage_costs import StageCosts, plain_costs


def test_every_closed_form() -> None:
    wrong = [check for check in checks() if not check.holds]
    assert not wrong, wrong[:5]


def test_the_closed_forms_cover_every_schedule_but_the_asynchronous_variant() -> None:
    # PipeDream-2BW runs PipeDream's program; only the versions of its weights differ, which is tested below.
    assert {check.schedule for check in checks()} == set(SCHEDULES) - {"pipedream-2bw"}


def test_weight_versions() -> None:
    assert [SCHEDULES["pipedream"].weight_versions(4, s) for s in range(4)] == [4, 3, 2, 1]
    assert [SCHEDULES["pipedream-2bw"].weight_versions(4, s) for s in range(4)] == [2, 2, 2, 2]
    assert SCHEDULES["pipedream-2bw"].refuses(Shape(ranks=4, micro_batches=3))
    assert not SCHEDULES["pipedream"].synchronous


def test_an_unknown_schedule_is_named_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown schedule 'gpip'.*gpipe, 1f1b"):
        schedule_named("gpip")


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[Shape, StageCosts]:
    p = draw(st.integers(1, 5))
    m = draw(st.integers(1, 10))
    replicas = tuple(draw(st.lists(st.integers(1, min(3, m)), min_size=p, max_size=p)))
    times = st.floats(0.1, 4.0)
    forward = draw(st.lists(times, min_size=p, max_size=p))
    backward = draw(st.lists(times, min_size=p, max_size=p))
    hops = draw(st.lists(st.floats(0.0, 3.0), min_size=p - 1, max_size=p - 1))
    sync = draw(st.lists(st.floats(0.0, 5.0), min_size=p, max_size=p))
    costs = replace(plain_costs(forward, backward, hop_s=hops), sync_s=np.array(sync))
    shape = Shape(ranks=p, micro_batches=m, replicas=replicas, stage_s=tuple(costs.stage_s.tolist()), hop_s=tuple(hops))
    return shape, costs


SYNCHRONOUS = [name for name, schedule in SCHEDULES.items() if schedule.synchronous]


@settings(max_examples=150, deadline=None)
@given(pipelines(), st.sampled_from(SYNCHRONOUS))
def test_every_program_is_complete_and_respects_its_dependencies(pipeline: tuple[Shape, StageCosts], name: str) -> None:
    shape, costs = pipeline
    schedule = SCHEDULES[name]
    if schedule.chunks > 1:
        shape = Shape(ranks=shape.ranks, micro_batches=shape.micro_batches, replicas=shape.replicas, chunks=2)
        costs = plain_costs(np.repeat(costs.forward_s, 2).tolist(), np.repeat(costs.backward_s, 2).tolist())
    if schedule.refuses(shape):
        return
    program = schedule.program(shape)
    run = simulate(program, costs, sends=schedule.sends)
    at = {
        (int(k), int(s), int(i)): (run.start_s[o], run.end_s[o])
        for o, (k, s, i) in enumerate(zip(program.kind, program.stage, program.micro_batch, strict=True))
    }
    for s in range(program.stages):
        for i in range(shape.micro_batches):
            # DualPipeV splits only some of its backwards.
            whole = (B, s, i) in at
            assert whole != ((I, s, i) in at)
            assert whole or schedule.splits_backward
            back = at[B if whole else I, s, i]
            assert at[F, s, i][1] <= back[0] + 1e-9
            assert whole or back[1] <= at[W, s, i][0] + 1e-9
            if s:
                before = at.get((B, s - 1, i)) or at[I, s - 1, i]
                assert at[F, s - 1, i][1] <= at[F, s, i][0] + 1e-9
                assert back[1] <= before[0] + 1e-9
    assert run.step_s >= max(end for _, end in at.values()) * (1 - 1e-9)


@settings(max_examples=200, deadline=None)
@given(pipelines(), st.sampled_from(["gpipe", "1f1b", "1f1b-so", "1f1b-link"]))
def test_no_step_beats_the_bound(pipeline: tuple[Shape, StageCosts], name: str) -> None:
    shape, costs = pipeline
    run = simulate(SCHEDULES[name].program(shape), costs, occupancy=True)
    bound = plan_bound(costs, shape.micro_batches, shape.replica_counts)
    assert run.step_s >= bound * (1 - 1e-9)
    assert run.busy_s.sum() == pytest.approx(shape.micro_batches * costs.stage_s.sum())
    # A wire that carries one message at a time can only make things later.
    assert simulate(SCHEDULES[name].program(shape), costs).step_s <= run.step_s * (1 + 1e-9)


@settings(max_examples=80, deadline=None)
@given(pipelines())
def test_a_split_backward_keeps_to_its_own_bound(pipeline: tuple[Shape, StageCosts]) -> None:
    shape, costs = pipeline
    if SCHEDULES["zb-h1"].refuses(shape):
        return
    run = simulate(SCHEDULES["zb-h1"].program(shape), costs, occupancy=True)
    bound = plan_bound(costs, shape.micro_batches, shape.replica_counts, splits_backward=True)
    assert run.step_s >= bound * (1 - 1e-9)


@settings(max_examples=100, deadline=None)
@given(pipelines())
def test_overlapped_transfers_are_never_slower_than_blocking_ones(pipeline: tuple[Shape, StageCosts]) -> None:
    shape, costs = pipeline
    single = Shape(ranks=shape.ranks, micro_batches=shape.micro_batches)
    program = SCHEDULES["1f1b"].program(single)
    assert simulate(program, costs).step_s <= simulate(program, costs, sends="blocking").step_s * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(pipelines(), st.lists(st.integers(1, 4), min_size=5, max_size=5))
def test_caps_hold_and_never_deadlock(pipeline: tuple[Shape, StageCosts], caps: list[int]) -> None:
    shape, costs = pipeline
    capped = Shape(
        ranks=shape.ranks,
        micro_batches=shape.micro_batches,
        replicas=shape.replicas,
        stage_s=shape.stage_s,
        hop_s=shape.hop_s,
        caps=tuple(caps[: shape.ranks]),
    )
    run = simulate(SCHEDULES["1f1b-link"].program(capped), costs)
    limits = [cap for cap, r in zip(capped.caps, capped.replica_counts, strict=True) for _ in range(r)]
    assert all(peak <= limit for peak, limit in zip(run.peak_in_flight, limits, strict=True))


def test_1f1b_link_warms_up_deeper_only_at_slow_links() -> None:
    fast = Shape(ranks=4, micro_batches=16, stage_s=(3.0,) * 4, hop_s=(0.0,) * 3)
    assert link_depths(fast) == [4, 3, 2, 1]
    one_slow = Shape(ranks=4, micro_batches=16, stage_s=(3.0,) * 4, hop_s=(0.0, 3.0, 0.0))
    assert link_depths(one_slow) == [6, 5, 2, 1]


def test_1f1b_link_keeps_the_slowest_stage_busier_with_less_in_flight_than_1f1b_so() -> None:
    """On uneven stages and links: nearer to the ideal rate than 1F1B-SO, and fewer micro-batches in flight."""
    draw = np.random.default_rng(0)
    excess: dict[str, list[float]] = {"1f1b": [], "1f1b-so": [], "1f1b-link": []}
    depth: dict[str, list[float]] = {name: [] for name in excess}
    for _ in range(30):
        p = int(draw.integers(2, 8))
        hops = np.where(draw.random(p - 1) < 0.5, 0.0, draw.uniform(0, 3, p - 1)).tolist()
        costs = plain_costs(draw.uniform(0.5, 2, p).tolist(), draw.uniform(1, 3, p).tolist(), hop_s=hops)
        for name, rates in excess.items():
            shapes = [
                Shape(ranks=p, micro_batches=m, stage_s=tuple(costs.stage_s.tolist()), hop_s=tuple(hops))
                for m in (300, 600)
            ]
            short, long = (simulate(SCHEDULES[name].program(shape), costs) for shape in shapes)
            rates.append((long.step_s - short.step_s) / 300 / costs.stage_s.max() - 1)
            depth[name].append(float(long.peak_in_flight[0]) / p)
    mean = {name: float(np.mean(values)) for name, values in excess.items()}
    assert mean["1f1b-link"] < 0.005 < mean["1f1b-so"] < mean["1f1b"]
    assert np.mean(depth["1f1b"]) < np.mean(depth["1f1b-link"]) < np.mean(depth["1f1b-so"])


def test_a_deadlocked_program_is_reported() -> None:
    program = from_lanes([[(F, 0, 0), (B, 0, 0)], [(B, 1, 0), (F, 1, 0)]], stages=2, micro_batches=1)
    with pytest.raises(DeadlockError, match="wait for each other"):
        simulate(program, plain_costs([1, 1], [1, 1]))
    half = from_lanes([[(F, 0, 0), (B, 0, 0)]], stages=2, micro_batches=1)
    with pytest.raises(DeadlockError):
        simulate(half, plain_costs([1, 1], [1, 1]))


def test_operations_in_pytorchs_notation() -> None:
    program = SCHEDULES["1f1b"].program(Shape(ranks=2, micro_batches=2))
    assert program.text(0) == ["0F0", "0F1", "0B0", "0B1"]
    assert program.text(1) == ["1F0", "1B0", "1F1", "1B1"]
