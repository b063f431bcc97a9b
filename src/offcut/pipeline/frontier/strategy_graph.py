"""The exact frontier of a graph of operations, each with several strategies, and costs between strategies (FT).

Operations are removed one after the other, which leaves the frontier of the rest unchanged:

* two edges between the same operations become one: their costs are multiplied, pair by pair of strategies;
* an operation with one neighbour goes into that neighbour's strategies;
* an operation with two neighbours becomes an edge between them.

That is enough for chains, trees and series-parallel graphs. In any other graph an operation is taken with each of its
strategies in turn, which is exact as well, but takes time that grows exponentially with the number of such operations.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from offcut.errors import InputError
from offcut.pipeline.frontier.points import Frontier, single, union_of_products

#: Costs of an edge: `table[a][b]` if its first operation has strategy a and its second strategy b.
Table = list[list[Frontier]]
Point = tuple[float, float]


class StrategyGraph:
    """Operations with strategies, and edges with costs. Bytes and seconds, which are summed over all of them."""

    def __init__(self) -> None:
        self._strategies: dict[Hashable, list[Frontier]] = {}
        self._edges: dict[Hashable, dict[Hashable, Table]] = {}

    def add_operation(self, name: Hashable, strategies: Sequence[Point]) -> None:
        """Add an operation.

        Args:
            name: its name.
            strategies: (bytes, seconds) of each of its strategies, at least one.

        Raises:
            InputError: the name is taken, or there are no strategies.
        """
        if name in self._strategies or not strategies:
            raise InputError(f"operation {name}: there is one, or it has no strategy.", next_step="Name it otherwise.")
        self._strategies[name] = [single(*point, (name, k)) for k, point in enumerate(strategies)]
        self._edges[name] = {}

    def add_edge(self, first: Hashable, second: Hashable, costs: Sequence[Sequence[Point]]) -> None:
        """Add an edge; there may be several between two operations.

        Args:
            first: the name of an operation.
            second: the name of another.
            costs: `costs[a][b]` is (bytes, seconds) for strategy a of the first and b of the second.

        Raises:
            InputError: an operation is unknown, or the costs do not have one entry per pair of strategies.
        """
        shape = [len(self._strategies.get(name, ())) for name in (first, second)]
        if first == second or len(costs) != shape[0] or any(len(row) != shape[1] for row in costs) or 0 in shape:
            raise InputError(
                f"edge {first} - {second}: its costs are not one pair per pair of strategies.",
                next_step="Add both operations first, and a row per strategy of the first one.",
            )
        self._join(first, second, [[single(*point) for point in row] for row in costs])

    def frontier(self) -> Frontier:
        """Return the exact frontier; `choices` of its points are (operation, number of the strategy)."""
        if not self._strategies:
            raise InputError("the graph has no operations.", next_step="Add one.")
        graph = StrategyGraph()
        graph._strategies = {name: list(own) for name, own in self._strategies.items()}
        graph._edges = {name: dict(tables) for name, tables in self._edges.items()}
        return graph._eliminated()

    def _join(self, first: Hashable, second: Hashable, table: Table) -> None:
        """Add costs to the edge between two operations."""
        known = self._edges[first].get(second)
        if known is not None:
            table = [
                [union_of_products([(x, y)]) for x, y in zip(*rows, strict=True)]
                for rows in zip(known, table, strict=True)
            ]
        self._edges[first][second] = table
        self._edges[second][first] = [list(column) for column in zip(*table, strict=True)]

    def _remove(self, name: Hashable) -> tuple[list[Frontier], dict[Hashable, Table]]:
        """Remove an operation; return its strategies and its edges."""
        tables = self._edges.pop(name)
        for other in tables:
            del self._edges[other][name]
        return self._strategies.pop(name), tables

    def _eliminated(self) -> Frontier:
        """Remove all operations; return the frontier."""
        alone: list[Frontier] = []
        while self._strategies:
            name = min(self._strategies, key=lambda op: len(self._edges[op]))
            degree = len(self._edges[name])
            if degree > 2:
                rest = self._conditioned()
                return union_of_products([[*alone, rest]])
            own, tables = self._remove(name)
            if degree == 0:
                alone.append(union_of_products([x] for x in own))
            elif degree == 1:
                ((other, table),) = tables.items()
                self._strategies[other] = [
                    union_of_products([whole, table[k][a], mine] for k, mine in enumerate(own))
                    for a, whole in enumerate(self._strategies[other])
                ]
            else:
                (left, to_left), (right, to_right) = tables.items()
                self._join(left, right, _through(own, to_left, to_right))
        return union_of_products([alone])

    def _conditioned(self) -> Frontier:
        """Take the operation with the most neighbours with each of its strategies in turn."""
        name = max(self._strategies, key=lambda op: len(self._edges[op]))
        found: list[Sequence[Frontier]] = []
        for k, mine in enumerate(self._strategies[name]):
            rest = StrategyGraph()
            rest._strategies = dict(self._strategies)
            rest._edges = {op: dict(tables) for op, tables in self._edges.items()}
            _, tables = rest._remove(name)
            for other, table in tables.items():
                rest._strategies[other] = [
                    union_of_products([(whole, cost)])
                    for whole, cost in zip(rest._strategies[other], table[k], strict=True)
                ]
            found.append((mine, rest._eliminated()))
        return union_of_products(found)


def _through(own: list[Frontier], to_left: Table, to_right: Table) -> Table:
    """Return the costs between two operations through one in the middle."""
    return [
        [
            union_of_products((to_left[k][a], mine, to_right[k][b]) for k, mine in enumerate(own))
            for b in range(len(to_right[0]))
        ]
        for a in range(len(to_left[0]))
    ]
