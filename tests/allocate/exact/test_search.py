"""The limits of the search."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given, settings

from offcut.allocate.exact.search import limits


@settings(deadline=None)  # the first call compiles
@given(st.floats(0, 1e12), st.floats(1e-12, 1e3))
def test_limits_rise_from_far_below_the_gap_to_just_above_it(gap: float, tie: float) -> None:
    found = limits(gap, tie)
    assert list(found) == sorted(found)
    assert found[0] == min(max(gap / 64, 4 * tie), gap + 4 * tie)
    assert found[-1] == gap + 4 * tie
    assert all(after <= 8 * before for before, after in pairwise(found) if after < found[-1])
