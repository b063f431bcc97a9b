"""The actions of a member at a boundary."""

from __future__ import annotations

import itertools

import pytest

from offcut.membership.boundary import BoundaryActions, at_boundary

QUIET = {"has_group": True, "aborted": False, "applied": True, "switch": False, "save": False, "leaving": False}


@pytest.mark.parametrize(
    ("told", "actions"),
    [
        ({}, BoundaryActions()),
        ({"has_group": False}, BoundaryActions(enter=True)),
        ({"aborted": True, "switch": True}, BoundaryActions(abandon=True, enter=True)),
        ({"switch": True}, BoundaryActions(switch=True)),
        ({"leaving": True}, BoundaryActions(switch=True)),
        ({"save": True}, BoundaryActions(checkpoint=True)),
        ({"save": True, "switch": True}, BoundaryActions(checkpoint=True, switch=True)),
        ({"save": True, "leaving": True}, BoundaryActions(switch=True)),
        ({"applied": False, "switch": True, "save": True, "leaving": True}, BoundaryActions()),
    ],
)
def test_at_boundary(told: dict[str, bool], actions: BoundaryActions) -> None:
    assert at_boundary(**{**QUIET, **told}) == actions


def test_a_member_enters_or_switches_or_goes_on_and_never_two_of_these() -> None:
    for values in itertools.product((False, True), repeat=len(QUIET)):
        actions = at_boundary(**dict(zip(QUIET, values, strict=True)))
        assert not (actions.enter and actions.switch)
        assert not actions.abandon or actions.enter
