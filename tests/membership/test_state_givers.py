"""The members whose state the others take over in a new generation."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from offcut.membership.state_givers import newest_step, transfer_rounds


@given(steps=st.lists(st.integers(-1, 5), min_size=1, max_size=12))
def test_only_those_who_lack_it_receive_once_and_givers_have_it(steps: list[int]) -> None:
    have = {rank for rank, step in enumerate(steps) if step == max(steps)}
    lacking = set(range(len(steps))) - have
    for turn in transfer_rounds(steps):
        busy = Counter(rank for pair in turn for rank in pair)
        assert max(busy.values()) == 1
        assert all(giver in have and receiver in lacking for giver, receiver in turn)
        have |= {receiver for _, receiver in turn}
        lacking -= have
    assert not lacking or max(steps) < 0


def test_one_giver_serves_seven_in_three_rounds() -> None:
    assert [len(turn) for turn in transfer_rounds([4, *[-1] * 7])] == [1, 2, 4]


def test_without_any_state_no_member_gives() -> None:
    assert newest_step([-1, -1]) == -1
    assert transfer_rounds([-1, -1]) == []
