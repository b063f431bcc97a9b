"""The actions of a worker that hears of a new generation."""

from __future__ import annotations

import pytest

from offcut.membership.entering import NextMove, is_fenced, next_move
from offcut.membership.generation import Generation

OURS, OTHERS = (Generation(3, workers, store="", job="") for workers in (("a", "b"), ("b", "c")))


@pytest.mark.parametrize(
    ("newest", "was_member", "move"),
    [
        (OURS, False, NextMove.ENTER),
        (OURS, True, NextMove.ENTER),
        (OTHERS, False, NextMove.WAIT),
        (OTHERS, True, NextMove.LEAVE),
        (None, False, NextMove.LEAVE),
        (None, True, NextMove.LEAVE),
    ],
)
def test_next_move(newest: Generation | None, was_member: bool, move: NextMove) -> None:
    assert next_move("a", newest, was_member=was_member) is move


def test_a_member_that_is_not_in_the_newest_generation_is_fenced() -> None:
    assert is_fenced("a", OTHERS)
    assert not is_fenced("a", OURS)
