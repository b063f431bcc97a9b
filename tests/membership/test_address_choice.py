"""Which address members use to reach each other: pure, with a virtual clock."""

from __future__ import annotations

import pytest

from offcut.membership.address_choice import (
    ALL_PAIRS,
    PREFERRED_WAIT_S,
    AddressChoice,
    explain_failures,
    probed_ranks,
    probing_ranks,
)

MANAGEMENT, DATA = "10.1.0.11", "10.2.0.11"


@pytest.mark.parametrize("world", [2, 3, ALL_PAIRS, ALL_PAIRS + 1, 18, 31, 32, 33, 1000])
def test_who_tries_whom_is_the_same_seen_from_both_sides(world: int) -> None:
    tries = {(rank, other) for rank in range(world) for other in probed_ranks(rank, world)}
    assert tries == {(other, rank) for rank in range(world) for other in probing_ranks(rank, world)}
    assert all(rank != other for rank, other in tries)
    if world <= ALL_PAIRS:
        assert len(tries) == world * (world - 1)
    else:
        assert all(len(set(probed_ranks(rank, world))) == (world - 1).bit_length() for rank in range(world))


def test_the_address_at_which_all_peers_have_been_heard() -> None:
    choice = AddressChoice([MANAGEMENT, DATA], frozenset({1, 2}))
    choice.note_reached(MANAGEMENT, 1, 0.0)
    choice.note_reached(DATA, 1, 0.0)
    assert choice.chosen(100.0) is None
    choice.note_reached(DATA, 2, 100.0)
    assert choice.chosen(100.0) is None, "the preferred one may still come"
    assert choice.chosen(100.0 + PREFERRED_WAIT_S) == DATA


def test_the_preferred_address_is_used_at_once() -> None:
    choice = AddressChoice([MANAGEMENT, DATA], frozenset({1}))
    choice.note_reached(DATA, 1, 5.0)
    choice.note_reached(MANAGEMENT, 1, 5.01)
    assert choice.chosen(5.01) == MANAGEMENT


def test_an_address_that_is_not_ours_counts_for_nothing() -> None:
    choice = AddressChoice([DATA], frozenset({1}))
    choice.note_reached(MANAGEMENT, 1, 0.0)
    assert choice.chosen(9.0) is None


def test_says_who_cannot_connect_and_where() -> None:
    names = ["n01", "n02", "n03"]
    choice = AddressChoice([MANAGEMENT, DATA], frozenset({1, 2}))
    choice.note_reached(DATA, 1, 0.0)
    assert choice.explain(names) == f"n03 cannot connect to this node at {MANAGEMENT}, {DATA}"
    choice.note_reached(MANAGEMENT, 2, 0.0)
    assert choice.explain(names).startswith("not all members can connect to this node at one and the same")
    assert explain_failures("n03", {DATA: "No route to host"}) == (
        f"this node cannot connect to n03 ({DATA}: No route to host)"
    )
