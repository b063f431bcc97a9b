"""Tensor parallelism: the elements that virtual ranks receive, and that they compute what one process computes.

The virtual ranks are arrays in one process. Whatever one of them uses of another's block is counted as received.
"""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from offcut.pipeline.layer_profile import Floats
from offcut.pipeline.tensor_parallel import (
    Product,
    mlp_products,
    received_1d,
    received_2d,
    received_3d,
    tensor_splits,
)

Rank = tuple[int, ...]


class Ranks:
    """Collectives over parts that virtual ranks hold, with a count of the elements that each receives."""

    def __init__(self) -> None:
        self.received: Counter[Rank] = Counter()

    def all_gather(self, group: list[Rank], parts: dict[Rank, Floats], axis: int = 0) -> Floats:
        """Every rank of the group gets all parts, in the order of the group."""
        for rank in group:
            self.received[rank] += sum(parts[other].size for other in group if other != rank)
        return np.concatenate([parts[rank] for rank in group], axis=axis)

    def reduce_scatter(self, group: list[Rank], partial: dict[Rank, Floats]) -> dict[Rank, Floats]:
        """Rank k of the group gets the k-th part of the rows of the sum; each of the others sends it its own part."""
        rows = np.array_split(sum(partial[rank] for rank in group), len(group))
        for rank, mine in zip(group, rows, strict=True):
            self.received[rank] += (len(group) - 1) * mine.size
        return dict(zip(group, rows, strict=True))

    def all_reduce(self, group: list[Rank], partial: dict[Rank, Floats]) -> Floats:
        """A ring: a reduce-scatter, then an all-gather."""
        return self.all_gather(group, self.reduce_scatter(group, partial))

    def broadcast(self, root: Rank, group: list[Rank], block: Floats) -> Floats:
        for rank in group:
            self.received[rank] += block.size if rank != root else 0
        return block

    def reduce(self, root: Rank, group: list[Rank], partial: dict[Rank, Floats]) -> Floats:
        """A chain that ends at the root: every rank but its first receives one block."""
        order = [rank for rank in group if rank != root] + [root]
        for rank in order[1:]:
            self.received[rank] += partial[rank].size
        return np.asarray(sum(partial.values()))


def draw_mlp(tokens: int, hidden: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Input, two weights, and the gradient of the output of h -> 4 h -> h."""
    draw = np.random.default_rng(tokens * hidden)
    shapes = ((tokens, hidden), (hidden, 4 * hidden), (4 * hidden, hidden), (tokens, hidden))
    x, first, second, gradient = (draw.normal(size=shape) for shape in shapes)
    return x, first, second, gradient


def grid(matrix: Floats, rows: int, columns: int) -> dict[tuple[int, int], Floats]:
    return {
        (i, j): block
        for i, row in enumerate(np.split(matrix, rows))
        for j, block in enumerate(np.split(row, columns, axis=1))
    }


def test_one_dimension() -> None:
    x, first, second, gradient = draw_mlp(8, 8)
    ranks: list[Rank] = [(r,) for r in range(4)]
    columns, rows = np.split(first, 4, axis=1), np.split(second, 4)
    forward, backward = Ranks(), Ranks()
    hidden = [x @ columns[r] for r in range(4)]
    y = forward.all_reduce(ranks, {(r,): hidden[r] @ rows[r] for r in range(4)})
    assert np.allclose(y, x @ first @ second)
    dx = backward.all_reduce(ranks, {(r,): gradient @ rows[r].T @ columns[r].T for r in range(4)})
    assert np.allclose(dx, gradient @ second.T @ first.T)
    says = received_1d(mlp_products(8, 8), 4)
    assert set(forward.received.values()) == {says.forward}
    assert set(backward.received.values()) == {says.backward}


def line(i: int | None, j: int | None, side: int) -> list[Rank]:
    """A row (i given) or a column (j given) of a square of ranks."""
    return [(i if i is not None else k, j if j is not None else k) for k in range(side)]


def test_two_dimensions() -> None:
    """SUMMA, with both gradients; a chain's first rank receives nothing, so the sum over all ranks is compared."""
    q = 2
    x, weight, _, _ = draw_mlp(8, 8)
    gradient = np.random.default_rng(1).normal(size=(8, 32))
    a, b, g = grid(x, q, q), grid(weight, q, q), grid(gradient, q, q)
    forward, backward = Ranks(), Ranks()
    y = {rank: np.zeros((8 // q, 32 // q)) for rank in a}
    for k in range(q):
        for i, j in a:
            y[i, j] += a[i, k] @ b[k, j]
        for n in range(q):
            forward.broadcast((n, k), line(n, None, q), a[n, k])
            forward.broadcast((k, n), line(None, n, q), b[k, n])
    assert np.allclose(np.block([[y[i, j] for j in range(q)] for i in range(q)]), x @ weight)
    dx, dw = {}, {}
    for k in range(q):
        for n in range(q):
            backward.broadcast((k, n), line(None, n, q), b[k, n])
            dx[n, k] = backward.reduce((n, k), line(n, None, q), {(n, j): g[n, j] @ b[k, j].T for j in range(q)})
            backward.broadcast((n, k), line(n, None, q), a[n, k])
            dw[k, n] = backward.reduce((k, n), line(None, n, q), {(i, n): a[i, k].T @ g[i, n] for i in range(q)})
    assert np.allclose(np.block([[dx[i, j] for j in range(q)] for i in range(q)]), gradient @ weight.T)
    assert np.allclose(np.block([[dw[i, j] for j in range(q)] for i in range(q)]), x.T @ gradient)
    says = received_2d([Product(x=x.size, w=weight.size, y=gradient.size)], q)
    assert sum(forward.received.values()) == q**2 * says.forward
    assert sum(backward.received.values()) == q**2 * says.backward


class Cube:
    """p^3 virtual ranks (i, j, l), and one product on them."""

    def __init__(self, p: int) -> None:
        self.p = p
        self.forward, self.backward = Ranks(), Ranks()

    def along(self, axis: int, rank: Rank) -> list[Rank]:
        """The p ranks that differ from `rank` in one coordinate only."""
        return [tuple(k if a == axis else c for a, c in enumerate(rank)) for k in range(self.p)]

    def parts(self, blocks: dict[tuple[int, int], Floats], axes: tuple[int, int]) -> dict[Rank, Floats]:
        """Rank r holds the part of block (r[axes[0]], r[axes[1]]) that its third coordinate names."""
        (third,) = {0, 1, 2} - set(axes)
        return {
            rank: np.array_split(blocks[rank[axes[0]], rank[axes[1]]], self.p)[rank[third]]
            for rank in itertools.product(range(self.p), repeat=3)
        }

    def gather(self, counts: Ranks, parts: dict[Rank, Floats], axis: int) -> dict[Rank, Floats]:
        """Every rank gets the block that is spread along one axis."""
        return {
            member: whole
            for rank in parts
            if rank[axis] == 0
            for whole in [counts.all_gather(self.along(axis, rank), parts)]
            for member in self.along(axis, rank)
        }

    def scatter_sum(self, counts: Ranks, partial: dict[Rank, Floats], axis: int) -> dict[Rank, Floats]:
        found: dict[Rank, Floats] = {}
        for rank in partial:
            if rank[axis] == 0:
                found |= counts.reduce_scatter(self.along(axis, rank), partial)
        return found

    def multiply(
        self, x: dict[Rank, Floats], w: dict[Rank, Floats], j: int, inner: int
    ) -> tuple[dict[Rank, Floats], dict[Rank, Floats], dict[Rank, Floats]]:
        """X_il W_lj, summed over the axis `inner`; `j` is the other axis. Returns the output and what was gathered."""
        whole_x = self.gather(self.forward, x, j)
        whole_w = self.gather(self.forward, w, 0)
        y = self.scatter_sum(self.forward, {r: whole_x[r] @ whole_w[r] for r in x}, inner)
        return y, whole_x, whole_w

    def back(
        self, dy: dict[Rank, Floats], whole_x: dict[Rank, Floats], whole_w: dict[Rank, Floats], j: int, inner: int
    ) -> tuple[dict[Rank, Floats], dict[Rank, Floats]]:
        """The gradients of X and W from that of Y."""
        whole_dy = self.gather(self.backward, dy, inner)
        dx = self.scatter_sum(self.backward, {r: whole_dy[r] @ whole_w[r].T for r in dy}, j)
        dw = self.scatter_sum(self.backward, {r: whole_x[r].T @ whole_dy[r] for r in dy}, 0)
        return dx, dw


@pytest.mark.parametrize("p", [2, 3])
def test_three_dimensions(p: int) -> None:
    """An MLP forward and backward: the axes of the columns swap between its two products."""
    tokens, hidden = 2 * p * p, p * p
    x, first, second, gradient = draw_mlp(tokens, hidden)
    cube = Cube(p)
    h, x_whole, first_whole = cube.multiply(
        cube.parts(grid(x, p, p), (0, 2)), cube.parts(grid(first, p, p), (2, 1)), 1, 2
    )
    y, h_whole, second_whole = cube.multiply(h, cube.parts(grid(second, p, p), (1, 2)), 2, 1)
    dh, d_second = cube.back(cube.parts(grid(gradient, p, p), (0, 2)), h_whole, second_whole, 2, 1)
    dx, d_first = cube.back(dh, x_whole, first_whole, 1, 2)
    for parts, matrix, axes in (
        (y, x @ first @ second, (0, 2)),
        (dx, gradient @ second.T @ first.T, (0, 2)),
        (d_second, (x @ first).T @ gradient, (1, 2)),
        (d_first, x.T @ (gradient @ second.T), (2, 1)),
    ):
        expected = cube.parts(grid(matrix, p, p), axes)
        assert all(np.allclose(parts[rank], expected[rank]) for rank in expected)
    says = received_3d(mlp_products(tokens, hidden), p)
    assert set(cube.forward.received.values()) == {says.forward}
    assert set(cube.backward.received.values()) == {says.backward}


@pytest.mark.parametrize("p", [2, 3, 4])
@pytest.mark.parametrize("tokens", [64, 1024, 16384])
def test_an_mlp_in_three_dimensions_against_one(p: int, tokens: int) -> None:
    """Forward: (5 + 4 h / T) / (p^2 + p + 1) of what one dimension receives."""
    hidden = 1024
    products = mlp_products(tokens, hidden)
    ratio = received_3d(products, p).forward / received_1d(products, p**3).forward
    assert ratio == pytest.approx((5 + 4 * hidden / tokens) / (p * p + p + 1))
    wins = {2: tokens > 2 * hidden, 4: tokens > hidden / 4}
    assert p not in wins or (ratio < 1) == wins[p]


def test_which_splits_a_number_of_ranks_allows() -> None:
    products = mlp_products(64, 64)
    names = {n: [split.name for split in tensor_splits(products, n)] for n in (1, 2, 4, 8, 27, 64, 100)}
    assert names[1] == []
    assert names[2] == ["1-D"]
    assert names[4] == ["1-D", "2-D"]
    assert names[8] == names[27] == ["1-D", "3-D"]
    assert names[64] == ["1-D", "2-D", "3-D"]
    assert names[100] == ["1-D", "2-D"]
