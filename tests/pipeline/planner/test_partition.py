"""The partitioners against brute force over every contiguous split."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from offcut.pipeline.hardware import Link, all_reduce_s
from offcut.pipeline.layer_profile import Chain
from offcut.pipeline.peers.baselines import pipedream_hybrid
from offcut.pipeline.planner.bound import ChainBound, plan_bound
from offcut.pipeline.planner.partition import StageSlots, balance, least_bound, split_bound
from offcut.pipeline.profile_file import read_profile
from offcut.pipeline.schedules import SCHEDULES, Shape
from offcut.pipeline.simulator import simulate
from offcut.pipeline.stage_costs import StageCosts


def random_chain(draw: np.random.Generator, layers: int) -> Chain:
    cuts = np.zeros(layers + 1)
    cuts[1:-1] = draw.integers(0, 10, layers - 1)
    return Chain(
        micro_batch=1,
        forward_s=draw.integers(1, 20, layers).astype(float),
        backward_s=draw.integers(1, 20, layers).astype(float),
        weight_grad_s=np.zeros(layers),
        cut_bytes=cuts,
        stored_bytes=draw.integers(1, 5, layers).astype(float),
        parameter_bytes=draw.integers(1, 5, layers).astype(float),
    )


def all_splits(layers: int, stages: int) -> list[tuple[int, ...]]:
    return [(0, *cut, layers) for cut in itertools.combinations(range(1, layers), stages - 1)]


@pytest.mark.parametrize("seed", range(150))
def test_balance_and_least_bound_are_exact(seed: int) -> None:
    """Mixed devices in order, mixed links, memory by micro-batches in flight, with and without overlap."""
    draw = np.random.default_rng(seed)
    layers = int(draw.integers(2, 9))
    stages = int(draw.integers(1, min(5, layers + 1)))
    base = random_chain(draw, layers)
    speeds = draw.choice([1.0, 2.0, 3.0], stages) if seed % 2 else np.ones(stages)
    chains = [replace(base, forward_s=base.forward_s / v, backward_s=base.backward_s / v) for v in speeds]
    links = [
        Link(bandwidth_bytes_s=float(draw.choice([0.5, 2, 10])), latency_s=float(draw.choice([0, 1])))
        for _ in range(stages - 1)
    ]
    memory = draw.integers(8, 60, stages).astype(float) if seed % 3 else np.full(stages, np.inf)
    slots = StageSlots(
        chains=chains,
        links=links,
        memory_bytes=memory.tolist(),
        in_flight=[stages - s for s in range(stages)],
        overlap=bool(seed % 5),
    )
    m = int(draw.integers(1, 12))
    slowest = bound = np.inf
    for cuts in all_splits(layers, stages):
        worst, fits = 0.0, True
        for s in range(stages):
            i, j = cuts[s], cuts[s + 1]
            held = base.stored_bytes[i:j].sum() + base.cut_bytes[i]
            fits &= 2 * base.parameter_bytes[i:j].sum() + (stages - s) * held <= memory[s]
            work = (chains[s].forward_s + chains[s].backward_s)[i:j].sum()
            moved = links[s - 1].transfer_s(base.cut_bytes[i]) if s else 0.0
            moved += links[s].transfer_s(base.cut_bytes[j]) if s < stages - 1 else 0.0
            worst = max(worst, max(work, moved) if slots.overlap else work + 2 * moved)
        if fits:
            slowest, bound = min(slowest, worst), min(bound, split_bound(slots, cuts, m))
    found, tight = balance(slots), least_bound(slots, m)
    if np.isinf(slowest):
        assert found is None
        assert tight is None
    else:
        assert found is not None
        assert tight is not None
        assert found.value_s == pytest.approx(slowest)
        assert tight.value_s == pytest.approx(bound, rel=1e-8)
        assert split_bound(slots, tight.cuts, m) == pytest.approx(tight.value_s)


def hybrid_costs(chain: Chain, cuts: tuple[int, ...], replicas: tuple[int, ...], link: Link) -> StageCosts:
    spans = list(itertools.pairwise(cuts))
    weights = np.array([chain.parameter_bytes[i:j].sum() for i, j in spans])
    return StageCosts(
        forward_s=np.array([chain.forward_s[i:j].sum() for i, j in spans]),
        backward_s=np.array([chain.backward_s[i:j].sum() for i, j in spans]),
        weight_grad_s=np.zeros(len(spans)),
        hop_s=np.array([link.transfer_s(chain.cut_bytes[j]) for _, j in spans[:-1]]),
        sync_s=np.array([all_reduce_s(w, r, link) for w, r in zip(weights, replicas, strict=True)]),
        stored_bytes=np.ones(len(spans)),
        state_bytes=2 * weights,
        parameter_bytes=weights,
    )


@pytest.mark.parametrize("seed", range(25))
def test_no_plan_of_any_kind_beats_the_least_bound(seed: int) -> None:
    """Every contiguous split, every replication up to 4 devices, four schedules: none is under the bound."""
    draw = np.random.default_rng(1000 + seed)
    layers, devices, m = int(draw.integers(2, 6)), 4, int(draw.integers(1, 8))
    chain = random_chain(draw, layers)
    link = Link(bandwidth_bytes_s=float(draw.choice([0.5, 2, 50])), latency_s=float(draw.choice([0, 0.5])))
    chain_bound = ChainBound(chain, micro_batches=m, link=link, max_devices=devices)
    loose = chain_bound.least_s(devices)
    best_step = best_bound = np.inf
    for stages in range(1, min(devices, layers) + 1):
        for cuts in all_splits(layers, stages):
            for replicas in itertools.product(range(1, devices + 1), repeat=stages):
                if sum(replicas) > devices or max(replicas) > m:
                    continue
                costs = hybrid_costs(chain, cuts, replicas, link)
                shape = Shape(
                    ranks=stages,
                    micro_batches=m,
                    replicas=replicas,
                    stage_s=tuple(costs.stage_s.tolist()),
                    hop_s=tuple(costs.hop_s.tolist()),
                )
                best_bound = min(best_bound, plan_bound(costs, m, replicas))
                for name in ("gpipe", "1f1b", "1f1b-so", "1f1b-link"):
                    step = simulate(SCHEDULES[name].program(shape), costs, occupancy=True).step_s
                    best_step = min(best_step, step)
    tight, _ = chain_bound.tighten(devices, loose, best_step)
    assert loose <= best_bound * (1 + 1e-9)
    assert loose <= tight <= best_bound * (1 + 1e-9)
    assert best_bound <= best_step * (1 + 1e-9)
    # The relaxation forgets little: it must not be a trivial bound.
    assert tight >= 0.8 * best_bound


def test_pipedreams_optimiser_gives_its_published_answer(shared) -> None:
    chain = read_profile(shared / "data" / "pipedream-profiles" / "vgg16.txt").chain(128)
    period, cuts, replicas = pipedream_hybrid(chain, 4, 12e9)
    assert period == pytest.approx(0.170076219, abs=5e-10)
    assert (cuts, replicas) == ((0, 15, 36), (3, 1))
