"""Who holds which shards of the optimizers' state, as members come and go."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offcut.membership.state_shards import ShardMove, ShardPlan, least_bytes_moved, plan_shards

SIZES = st.lists(st.one_of(st.integers(0, 50), st.just(40), st.integers(0, 2000)), min_size=1, max_size=60)
#: How many members come and which go, from one generation to the next.
CHANGES = st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, 7), max_size=3)), min_size=1, max_size=8)


def check(plan: ShardPlan, held: Sequence[frozenset[int]], sizes: list[int], copies: int, staying: list[int]) -> None:
    share = min(copies, len(staying)) * sum(sizes) / len(staying)
    for shard, holders in enumerate(plan.holders):
        assert len(set(holders)) == len(holders) == min(copies, len(staying))
        assert set(holders) <= set(staying)
        assert plan.owners[shard] in holders
        assert (shard in plan.lost) == (not any(shard in of_rank for of_rank in held))
    for rank in staying:
        assert sum(sizes[shard] for shard in plan.held_by(rank)) <= share + max(sizes) + 1e-6
    got = [set(of_rank) for of_rank in held]
    for move in plan.moves:
        assert move.shard in held[move.giver]
        assert move.shard not in got[move.receiver]
        got[move.receiver].add(move.shard)
    for rank in staying:
        assert plan.held_by(rank) - set(plan.lost) <= got[rank]


@given(sizes=SIZES, changes=CHANGES, first=st.integers(1, 6), copies=st.integers(1, 3))
def test_a_resize_sends_no_more_than_an_even_division_must(
    sizes: list[int], changes: list[tuple[int, set[int]]], first: int, copies: int
) -> None:
    held: list[frozenset[int]] = [frozenset()] * first
    for come, go in [(0, set()), *changes]:
        held = [of_rank for rank, of_rank in enumerate(held) if rank not in go or len(held) == 1]
        held = [*(held or [frozenset()]), *[frozenset()] * come]
        plan = plan_shards(held, sizes, copies=copies)
        check(plan, held, sizes, copies, list(range(len(held))))
        # A member too few has left more copies than are wanted: each of these is dropped, not sent.
        if all(sum(shard in of_rank for of_rank in held) <= min(copies, len(held)) for shard in range(len(sizes))):
            assert plan.bytes_moved(sizes) <= least_bytes_moved(held, sizes, copies=copies) + 1e-6
        held = [plan.held_by(rank) for rank in range(len(held))]


@given(sizes=SIZES, world=st.integers(2, 8), dead=st.data())
def test_the_death_of_one_member_loses_nothing_with_two_copies(
    sizes: list[int], world: int, dead: st.DataObject
) -> None:
    held = [plan_shards([frozenset()] * world, sizes, copies=2).held_by(rank) for rank in range(world)]
    del held[dead.draw(st.integers(0, world - 1))]
    assert plan_shards(held, sizes, copies=2).lost == ()


@given(sizes=SIZES, world=st.integers(2, 6), leaving=st.sets(st.integers(0, 5), min_size=1))
def test_members_that_leave_hand_over_only_what_no_other_member_holds(
    sizes: list[int], world: int, leaving: set[int]
) -> None:
    staying = [rank for rank in range(world) if rank not in leaving] or [0]
    held = [plan_shards([frozenset()] * world, sizes).held_by(rank) for rank in range(world)]
    plan = plan_shards(held, sizes, staying=staying)
    check(plan, held, sizes, 1, staying)
    assert {move.shard for move in plan.moves} >= {
        s for s in range(len(sizes)) if not any(s in held[r] for r in staying)
    }


@pytest.mark.parametrize(("before", "after", "least"), [(4, 5, 1 / 5), (4, 8, 1 / 2), (1, 4, 3 / 4), (8, 7, 1 / 8)])
def test_many_shards_move_as_little_as_one_that_can_be_cut_anywhere(before: int, after: int, least: float) -> None:
    sizes = [1 << 20] * 1024
    held = [plan_shards([frozenset()] * before, sizes).held_by(rank) for rank in range(before)]
    held = [*held[:after], *[frozenset()] * (after - before)]
    if after < before:  # the last one left gracefully
        held = [*held, plan_shards([frozenset()] * before, sizes).held_by(before - 1)]
    plan = plan_shards(held, sizes, staying=range(after))
    assert 0.98 * least * sum(sizes) <= plan.bytes_moved(sizes) <= 1.05 * least * sum(sizes)


def test_a_joiner_gets_its_share_and_nothing_else_moves() -> None:
    plan = plan_shards([frozenset({0, 1, 2}), frozenset({3, 4, 5}), frozenset()], [10] * 6)
    assert plan.holders == ((2,), (0,), (0,), (2,), (1,), (1,))
    assert plan.moves == (ShardMove(0, 0, 2), ShardMove(3, 1, 2))
    assert plan.owners == (2, 0, 0, 2, 1, 1)


def test_with_fewer_members_than_copies_all_hold_everything() -> None:
    plan = plan_shards([frozenset({0, 1}), frozenset({0, 1})], [5, 7], copies=3)
    assert plan.holders == ((0, 1), (0, 1))
    assert not plan.moves
    assert plan.owners == (1, 0)
