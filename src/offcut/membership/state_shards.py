"""Which members of a job hold which shards of the optimizers' state, and what a change of the members moves.

With sharded optimizer state (ZeRO stage 1) each parameter's optimizer state is held by `copies` members, and by all of
them where there are fewer members. One of the holders, the owner, sends the updated parameter to the others. The plan
of a generation depends on nothing but what its members hold, so all of them compute the same from one gather.

Memory: `copies` ÷ members of the state for each member, and at most the largest shard beside that. With one copy the
death of a member loses its shards, and all members go back to the newest checkpoint; with two, each shard is updated by
two members, and the death of one loses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShardMove:
    """One member sends a shard to another, which has not held it."""

    shard: int
    giver: int
    receiver: int


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Who holds what in a generation, and how it gets there. Members are ranks, shards their indices."""

    #: By shard, the ranks that hold it from now on, in ascending order.
    holders: tuple[tuple[int, ...], ...]
    #: By shard, the holder that sends what it has updated to the others.
    owners: tuple[int, ...]
    #: What is sent for that, in this order.
    moves: tuple[ShardMove, ...]
    #: The shards that no member has held, in ascending order: they come from a checkpoint, or are new.
    lost: tuple[int, ...]

    def held_by(self, rank: int) -> frozenset[int]:
        """Return the shards that a member holds from now on."""
        return frozenset(shard for shard, ranks in enumerate(self.holders) if rank in ranks)

    def bytes_moved(self, shard_bytes: Sequence[int]) -> int:
        """Return how many bytes the moves send; `shard_bytes` are the shards' sizes."""
        return sum(shard_bytes[move.shard] for move in self.moves)


def plan_shards(
    held: Sequence[AbstractSet[int]],
    shard_bytes: Sequence[int],
    *,
    copies: int = 1,
    staying: Collection[int] | None = None,
) -> ShardPlan:
    """Return who holds which shards, where members have come or gone.

    A shard stays where it is as far as possible. A member that holds more than an even share gives shards away until it
    holds at most one shard more than that; what has too few holders goes to those that hold least. So no more bytes are
    sent than an exactly even division of the state has to send (`least_bytes_moved`).

    Args:
        held: by rank, the shards that the member holds now, all of the same step.
        shard_bytes: the shards' sizes.
        copies: how many members are to hold each shard, at least 1.
        staying: the ranks that go on holding shards; None: all. The others give what they have and hold nothing after
            that.

    Returns:
        The plan, the same for equal arguments.
    """
    ranks = sorted(range(len(held)) if staying is None else staying)
    copies = min(copies, len(ranks))
    largest_first = sorted(range(len(shard_bytes)), key=lambda shard: (-shard_bytes[shard], shard))
    holders: list[set[int]] = [{rank for rank in ranks if shard in held[rank]} for shard in range(len(shard_bytes))]
    load = {rank: sum(shard_bytes[shard] for shard in held[rank]) for rank in ranks}
    for shard in largest_first:
        while len(holders[shard]) > copies:
            _remove(shard, max(holders[shard], key=lambda rank: (load[rank], rank)), holders, load, shard_bytes)
    _unload(ranks, holders, load, shard_bytes, copies)
    for shard in largest_first:
        while len(holders[shard]) < copies:
            rank = min((rank for rank in ranks if rank not in holders[shard]), key=lambda rank: (load[rank], rank))
            holders[shard].add(rank)
            load[rank] += shard_bytes[shard]
    return ShardPlan(
        holders=tuple(tuple(sorted(of_shard)) for of_shard in holders),
        owners=_owners(holders, shard_bytes, largest_first),
        moves=_moves(held, holders, shard_bytes),
        lost=tuple(shard for shard in range(len(shard_bytes)) if not any(shard in of_rank for of_rank in held)),
    )


def least_bytes_moved(
    held: Sequence[AbstractSet[int]],
    shard_bytes: Sequence[int],
    *,
    copies: int = 1,
    staying: Collection[int] | None = None,
) -> float:
    """Return how many bytes have to be sent at the least until the state is divided evenly.

    Each copy that is missing is sent, if a member has the shard at all, and so is what a member holds beyond its even
    share, even if shards could be cut anywhere. For the arguments see `plan_shards`; none may be held by more than
    `copies` of the members that stay.
    """
    ranks = sorted(range(len(held)) if staying is None else staying)
    copies = min(copies, len(ranks))
    there = [sum(shard in held[rank] for rank in ranks) for shard in range(len(shard_bytes))]
    anywhere = [any(shard in of_rank for of_rank in held) for shard in range(len(shard_bytes))]
    missing = sum(
        size * (copies - count) for size, count, known in zip(shard_bytes, there, anywhere, strict=True) if known
    )
    share = copies * sum(shard_bytes) / len(ranks)
    return missing + sum(max(0.0, sum(shard_bytes[shard] for shard in held[rank]) - share) for rank in ranks)


def _remove(shard: int, rank: int, holders: list[set[int]], load: dict[int, int], shard_bytes: Sequence[int]) -> None:
    holders[shard].remove(rank)
    load[rank] -= shard_bytes[shard]


def _unload(
    ranks: Sequence[int], holders: list[set[int]], load: dict[int, int], shard_bytes: Sequence[int], copies: int
) -> None:
    """Remove shards from members that hold more than an even share and a shard."""
    share = copies * sum(shard_bytes) / len(ranks)
    for rank in ranks:
        own = [shard for shard, of_shard in enumerate(holders) if rank in of_shard]
        # First those that most others hold, so that not all give the same away; small ones last, to fill the rest.
        for shard in sorted(own, key=lambda shard: (-len(holders[shard]), -shard_bytes[shard], shard)):
            if load[rank] - shard_bytes[shard] >= share:
                _remove(shard, rank, holders, load, shard_bytes)


def _owners(holders: list[set[int]], shard_bytes: Sequence[int], largest_first: Sequence[int]) -> tuple[int, ...]:
    """Divide evenly among the holders who sends updated parameters."""
    sent: dict[int, int] = {}
    owners = [0] * len(holders)
    for shard in largest_first:
        owner = min(holders[shard], key=lambda rank: (sent.get(rank, 0), rank))
        owners[shard] = owner
        sent[owner] = sent.get(owner, 0) + shard_bytes[shard]
    return tuple(owners)


def _moves(
    held: Sequence[AbstractSet[int]], holders: list[set[int]], shard_bytes: Sequence[int]
) -> tuple[ShardMove, ...]:
    """Let those give that have given least."""
    given: dict[int, int] = {}
    moves = []
    for shard, of_shard in enumerate(holders):
        givers = [rank for rank, of_rank in enumerate(held) if shard in of_rank]
        for receiver in sorted(of_shard.difference(givers)) if givers else ():
            giver = min(givers, key=lambda rank: (given.get(rank, 0), rank))
            given[giver] = given.get(giver, 0) + shard_bytes[shard]
            moves.append(ShardMove(shard, giver, receiver))
    return tuple(moves)
