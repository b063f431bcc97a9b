"""Elastic examples as jobs whose members are killed and replaced: the losses are those of the undisturbed run."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_members import check_under_events
from example_pairs import PAIRS

#: In one process of xdist, for each of them would start a server of its own.
pytestmark = pytest.mark.xdist_group("members")

TESTED = {pair.name: pair for pair in PAIRS if pair.steps}
MARKED = [pytest.param(name, marks=[pytest.mark.frameworks] if pair.framework else []) for name, pair in TESTED.items()]


def test_the_losses_are_those_of_the_undisturbed_run_after_four_events(tmp_path: Path) -> None:
    """Two members are killed, and two join; a third leaves."""
    check_under_events(TESTED["lstm.py"], 2, 0, tmp_path)


@pytest.mark.ci
@pytest.mark.parametrize("name", MARKED)
def test_the_losses_are_those_of_the_undisturbed_run_after_twenty_one_events(name: str, tmp_path: Path) -> None:
    """Ten members are killed and ten join; one leaves."""
    check_under_events(TESTED[name], 10, 1, tmp_path)
