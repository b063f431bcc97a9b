"""A training in single precision has the losses of the undisturbed run, but for the rounding of sums."""

from __future__ import annotations

import pytest
from real_members import alone
from replacements import train_with_replacements
from single_precision_scripts import digits

pytestmark = [pytest.mark.xdist_group("members"), pytest.mark.ci]


def test_the_loss_of_every_step_is_the_undisturbed_one() -> None:
    """Ten members are killed and ten join, five generations break besides, and one member leaves."""
    results, undisturbed = train_with_replacements(digits, 10, 1), alone(digits)
    assert len(undisturbed["losses"]) >= 60
    for result in results:
        assert result["all_applied"]
        assert result["losses"] == pytest.approx(undisturbed["losses"], rel=1e-5)
