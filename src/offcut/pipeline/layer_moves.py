"""Which layers move between ranks when a pipeline job changes size. Pure.

A rank needs the layers that the new plan puts on it and fetches those that it lacks from a rank that has them. A rank
sends or receives one message at a time, so moves go in rounds of disjoint pairs; a rank that has received a layer can
send it in later rounds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from offcut.pipeline.plan import Plan

Layers = AbstractSet[int]


@dataclass(frozen=True, slots=True)
class Move:
    """`giver` sends `layers` to `receiver` (ranks)."""

    giver: int
    receiver: int
    layers: tuple[int, ...]


def layers_by_rank(plan: Plan) -> tuple[frozenset[int], ...]:
    """Return the layers that each rank of a plan holds.

    Args:
        plan: the plan.

    Returns:
        Layer numbers, by rank.
    """
    program = plan.program()
    held: list[set[int]] = [set() for _ in range(program.ranks)]
    for stage, ranks in zip(plan.stages, program.holders(), strict=True):
        for rank in ranks:
            held[rank] |= set(range(stage.first_layer, stage.end_layer))
    return tuple(frozenset(layers) for layers in held)


def layers_by_first_holder(held: Sequence[Layers]) -> list[frozenset[int]]:
    """Assign every layer to the first rank that holds it, so that each layer is written or counted once.

    Args:
        held: the layers that each rank holds, by rank.

    Returns:
        For each rank, the layers that no earlier rank holds.
    """
    seen: set[int] = set()
    mine = []
    for layers in held:
        mine.append(frozenset(layers - seen))
        seen |= layers
    return mine


def missing_layers(have: Sequence[Layers], layers: int) -> frozenset[int]:
    """Return the layers that no rank has.

    Args:
        have: the layers that each rank has, by rank.
        layers: the number of layers of the model.
    """
    return frozenset(range(layers)).difference(*have)


def rounds_of_moves(have: Sequence[Layers], need: Sequence[Layers], layer_bytes: Sequence[int]) -> list[list[Move]]:
    """Plan the moves after which every rank has the layers that it needs, the largest first.

    No layer is sent to a rank that has it, and none twice. Layers that no rank has are left out: see `missing_layers`.

    Args:
        have: the layers that each rank has, by rank.
        need: the layers that each rank needs, by rank.
        layer_bytes: the size of each layer, by layer.

    Returns:
        Rounds of moves; the pairs of one round are disjoint.
    """
    there = [set(layers) for layers in have]
    lacking = [set(wanted) - mine for wanted, mine in zip(need, there, strict=True)]
    plan: list[list[Move]] = []
    while True:
        possible = [
            (sum(layer_bytes[i] for i in common), giver, receiver, common)
            for receiver, wanted in enumerate(lacking)
            if wanted
            for giver, mine in enumerate(there)
            if (common := wanted & mine)
        ]
        if not possible:
            return plan
        busy: set[int] = set()
        turn = []
        for _, giver, receiver, common in sorted(possible, key=lambda pair: (-pair[0], pair[1], pair[2])):
            if giver in busy or receiver in busy:
                continue
            busy |= {giver, receiver}
            turn.append(Move(giver, receiver, tuple(sorted(common))))
        for move in turn:
            there[move.receiver] |= set(move.layers)
            lacking[move.receiver] -= set(move.layers)
        plan.append(turn)


def layers_to_take_over(
    have: Sequence[Layers], leaving: Collection[int], wish: Sequence[Layers], layer_bytes: Sequence[int]
) -> list[set[int]]:
    """Choose the ranks that take over the layers that only leaving ranks have.

    Each layer goes to the staying ranks that wish for it, and if there is none, to the one that takes over least.

    Args:
        have: the layers that each rank has, by rank.
        leaving: the ranks that leave.
        wish: the layers that the next plan will probably put on each rank, by rank.
        layer_bytes: the size of each layer, by layer.

    Returns:
        The layers that each rank takes over, by rank; all empty if no rank stays.
    """
    stay = [rank for rank in range(len(have)) if rank not in leaving]
    takes: list[set[int]] = [set() for _ in have]
    if not stay:
        return takes
    kept = frozenset().union(*(have[rank] for rank in stay))
    for layer in sorted(frozenset().union(*(have[rank] for rank in leaving)) - kept):
        wishing = [rank for rank in stay if layer in wish[rank]]
        least = min(stay, key=lambda rank: (sum(layer_bytes[i] for i in takes[rank]), rank))
        for rank in wishing or [least]:
            takes[rank].add(layer)
    return takes
