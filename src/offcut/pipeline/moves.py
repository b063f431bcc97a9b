"""Who fetches which layers from whom when a pipeline job changes size. Pure.

A member needs the layers that the new plan puts on it, and fetches only those of them that it lacks, from a member
that has them. Moves go in rounds of disjoint pairs, as a member sends or receives one thing at a time; whoever has
received a layer gives it on in later rounds.
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


def placement(plan: Plan) -> tuple[frozenset[int], ...]:
    """The layers that each rank of the plan holds."""
    program = plan.program()
    held: list[set[int]] = [set() for _ in range(program.ranks)]
    for lane, rank in enumerate(program.rank_of_lane.tolist()):
        for stage in {stage for _, stage, _ in program.lane(lane)}:
            held[rank] |= set(range(plan.stages[stage].first_layer, plan.stages[stage].end_layer))
    return tuple(frozenset(layers) for layers in held)


def owned(held: Sequence[Layers]) -> list[frozenset[int]]:
    """Each layer with the first rank that holds it: who writes it down, or counts it, once."""
    seen: set[int] = set()
    mine = []
    for layers in held:
        mine.append(frozenset(layers - seen))
        seen |= layers
    return mine


def lost(have: Sequence[Layers], layers: int) -> frozenset[int]:
    """Which of the model's `layers` layers nobody has."""
    return frozenset(range(layers)).difference(*have)


def rounds(have: Sequence[Layers], need: Sequence[Layers], layer_bytes: Sequence[int]) -> list[list[Move]]:
    """Rounds of moves after which every rank has what it needs; the largest moves go first.

    Nothing is sent to a rank that has it, and nothing twice. What nobody has is not moved: see `lost`.
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


def heirs(
    have: Sequence[Layers], leaving: Collection[int], wish: Sequence[Layers], layer_bytes: Sequence[int]
) -> list[set[int]]:
    """What each rank has to take over before the ranks `leaving` go: the layers that only those have.

    Each goes to the staying ranks whose `wish` it is (what the next plan will probably put on them); one that nobody
    wishes for to whoever takes over least. Empty where nobody stays.
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
