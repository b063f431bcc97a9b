"""Frontiers of time against memory: brute force on random graphs and chains, and how far a thinned one may be off."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from offcut.errors import InputError
from offcut.pipeline.frontier.chain import LayerOption, chain_frontier
from offcut.pipeline.frontier.points import Frontier, single, thinned, union_of_products
from offcut.pipeline.frontier.strategy_graph import Point, StrategyGraph
from offcut.pipeline.layer_profile import Floats

Costs = dict[tuple[int, int], Floats]


def brute_force(strategies: list[Floats], edges: list[tuple[int, int, Floats]]) -> list[tuple[float, float]]:
    """All combinations of strategies; of (memory, time) those that no other beats. Costs have shapes (..., 2)."""
    count = len(strategies)
    total = np.zeros((*(len(own) for own in strategies), 2))
    for op, own in enumerate(strategies):
        total += own.reshape([len(own) if k == op else 1 for k in range(count)] + [2])
    for a, b, costs in edges:
        table = costs if a < b else costs.transpose(1, 0, 2)
        total += table.reshape([len(strategies[k]) if k in (a, b) else 1 for k in range(count)] + [2])
    memory, seconds = total.reshape(-1, 2).T
    order = np.lexsort((seconds, memory))
    memory, seconds = memory[order], seconds[order]
    best = np.append(np.inf, np.minimum.accumulate(seconds)[:-1])
    return [(float(m), float(t)) for m, t in zip(memory[seconds < best], seconds[seconds < best], strict=True)]


def random_graph(draw: np.random.Generator) -> tuple[list[Floats], list[tuple[int, int, Floats]]]:
    """2 to 7 operations with up to 4 strategies each: chains, series-parallel graphs, several parts, any graph.

    Costs are whole numbers, so that sums are exact and points often equal each other.
    """
    ops = int(draw.integers(2, 8))
    strategies = [draw.integers(0, 30, (draw.integers(1, 5), 2)).astype(float) for _ in range(ops)]
    kind = draw.integers(0, 4)
    pairs = [(k, k + 1) for k in range(ops - 1)]
    if kind == 1:  # a branch that leaves the chain and joins it again, and an edge twice
        a, b = sorted(draw.choice(ops, 2, replace=False).tolist())
        pairs += [(a, b), (0, 1)]
    elif kind == 2:  # a tree, with parts that are not joined to it
        pairs = [(int(draw.integers(0, k)), k) for k in range(1, ops) if draw.random() < 0.8]
    elif kind == 3:  # any edges
        pairs += [(b, a) for a, b in itertools.combinations(range(ops), 2) if draw.random() < 0.4]
    edges = [(a, b, draw.integers(0, 30, (len(strategies[a]), len(strategies[b]), 2)).astype(float)) for a, b in pairs]
    return strategies, edges


def points(rows: Floats) -> list[Point]:
    return [(float(m), float(t)) for m, t in rows]


def test_brute_force_on_a_thousand_random_graphs() -> None:
    draw = np.random.default_rng(11)
    for _ in range(1000):
        strategies, edges = random_graph(draw)
        graph = StrategyGraph()
        for op, own in enumerate(strategies):
            graph.add_operation(op, points(own))
        for a, b, costs in edges:
            graph.add_edge(a, b, [points(row) for row in costs])
        frontier = graph.frontier()
        assert frontier.points() == brute_force(strategies, edges)
        # The strategies behind a point have the costs of the point.
        k = int(draw.integers(len(frontier)))
        chosen = dict(frontier.choices(k))  # type: ignore[arg-type]
        cost = sum(own[chosen[op]] for op, own in enumerate(strategies))
        cost = cost + sum((costs[chosen[a], chosen[b]] for a, b, costs in edges), np.zeros(2))
        assert tuple(cost) == frontier.points()[k]


def random_chain(draw: np.random.Generator, layers: int, *, whole: bool) -> tuple[list[list[LayerOption]], Floats]:
    """Layers with four options on two layouts."""

    def number(most: float) -> float:
        return float(draw.integers(0, int(most))) if whole else float(draw.uniform(0, most))

    options = [
        [LayerOption(name=(k, n), layout=n % 2, memory_bytes=number(30), time_s=number(30) + 1) for n in range(4)]
        for k in range(layers)
    ]
    relayout = np.array([[[0.0, number(9)], [number(9), 0.0]] for _ in range(layers - 1)]).reshape(layers - 1, 2, 2)
    return options, relayout


def test_brute_force_on_random_chains() -> None:
    draw = np.random.default_rng(12)
    for _ in range(100):
        layers = int(draw.integers(1, 6))
        options, relayout = random_chain(draw, layers, whole=True)
        strategies = [np.array([[x.memory_bytes, x.time_s] for x in layer]) for layer in options]
        edges = []
        for k in range(layers - 1):
            times = np.array([[relayout[k, a.layout, b.layout] for b in options[k + 1]] for a in options[k]])
            edges.append((k, k + 1, np.stack([np.zeros_like(times), times], axis=2)))
        found = chain_frontier(options, relayout)
        assert found.gap == 0
        assert found.frontier.points() == brute_force(strategies, edges)
        names = found.frontier.choices(len(found.frontier) - 1)
        assert [name[0] for name in names] == list(range(layers))  # type: ignore[index]
        assert sum(options[k][n].memory_bytes for k, n in names) == found.frontier.memory_bytes[-1]  # type: ignore[misc]


def test_brute_force_on_chains_with_options_of_several_layers() -> None:
    draw = np.random.default_rng(15)
    for _ in range(60):
        layers = int(draw.integers(1, 6))
        options, relayout = random_chain(draw, layers, whole=True)
        for k, starting in enumerate(options):
            for length in range(2, layers - k + 1):
                memory, seconds = (float(x) for x in draw.integers(1, 60, 2))
                layout = int(draw.integers(2))
                name = (k, 10 * length)
                starting.append(
                    LayerOption(name=name, layout=layout, memory_bytes=memory, time_s=seconds, layers=length)
                )

        def ends(k: int, layout: int | None) -> Iterator[Point]:
            if k == layers:  # noqa: B023 - used within this turn of the loop
                yield 0.0, 0.0
                return
            for x in options[k]:  # noqa: B023
                move = 0.0 if layout is None else float(relayout[k - 1, layout, x.layout])  # noqa: B023
                for memory, seconds in ends(k + x.layers, x.layout):
                    yield memory + x.memory_bytes, seconds + x.time_s + move

        best: list[Point] = []
        for memory, seconds in sorted(set(ends(0, None))):
            if not best or seconds < best[-1][1]:
                best.append((memory, seconds))
        found = chain_frontier(options, relayout)
        assert found.frontier.points() == best
        rough = chain_frontier(options, relayout, most_points=3)
        for memory, seconds in best:
            within = rough.frontier.time_s[rough.frontier.memory_bytes <= memory]
            assert within.min() <= seconds * (1 + rough.gap) * (1 + 1e-9)


def test_a_thinned_chain_is_within_its_gap_of_the_exact_one() -> None:
    options, relayout = random_chain(np.random.default_rng(13), 16, whole=False)
    exact = chain_frontier(options, relayout, most_points=10**9)
    rough = chain_frontier(options, relayout, most_points=24)
    assert exact.gap == 0
    assert len(rough.frontier) < len(exact.frontier)
    assert 0 < rough.gap < 0.3
    for memory, seconds in exact.frontier.points():
        within = rough.frontier.time_s[rough.frontier.memory_bytes <= memory]
        assert len(within)
        assert within.min() <= seconds * (1 + rough.gap) * (1 + 1e-9)
    assert rough.frontier.points()[0] == pytest.approx(exact.frontier.points()[0])
    assert rough.frontier.points()[-1] == pytest.approx(exact.frontier.points()[-1])


def test_a_thousand_layers() -> None:
    """Within 1 % of exact at every limit of memory. `benchmarks/pipeline.py` measures its time."""
    options, relayout = random_chain(np.random.default_rng(14), 1000, whole=False)
    found = chain_frontier(options, relayout)
    assert found.gap < 0.01
    assert len(found.frontier.choices(100)) == 1000


def test_equal_points_are_kept_once_and_beaten_ones_not_at_all() -> None:
    made = [single(m, t, k) for k, (m, t) in enumerate([(2, 5), (1, 9), (2, 5), (3, 5), (2, 4), (1, 9), (4, 1)])]
    frontier = union_of_products([(x,) for x in made])
    assert frontier.points() == [(1, 9), (2, 4), (4, 1)]
    assert frontier.choices(1) == [4]


def test_thinning_keeps_both_ends() -> None:
    memory = np.array([0.0, 1, 2, 3, 50, 98, 99, 100])
    frontier = Frontier(memory_bytes=memory, time_s=1 / (1 + memory))
    assert thinned(frontier, 8) is frontier
    for most in range(3, 8):
        fewer = thinned(frontier, most)
        assert 3 <= len(fewer) <= most
        assert set(fewer.points()) <= set(frontier.points())
        assert fewer.points()[0] == frontier.points()[0]
        assert fewer.points()[-1] == frontier.points()[-1]


def test_costs_that_do_not_match_the_strategies_are_refused() -> None:
    graph = StrategyGraph()
    with pytest.raises(InputError, match="no operations"):
        graph.frontier()
    graph.add_operation("a", [(1, 1), (2, 0)])
    graph.add_operation("b", [(1, 1)])
    with pytest.raises(InputError, match="edge a - b"):
        graph.add_edge("a", "b", [[(0, 0)]])
    with pytest.raises(InputError, match="operation a"):
        graph.add_operation("a", [(1, 1)])
