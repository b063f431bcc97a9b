"""Scaling curves: valid ones interpolate, invalid ones are refused with a reason."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.errors import InputError
from offcut.model import ScalingCurve, amdahl

points = st.dictionaries(st.integers(1, 500), st.floats(0, 1e9), min_size=1, max_size=8).map(
    lambda found: ScalingCurve(tuple(sorted(found)), tuple(found[n] for n in sorted(found)))
)


@given(points)
@settings(max_examples=60, deadline=None)
def test_a_curve_goes_through_its_points_and_stays_between_them(curve):
    assert (curve.nodes[0], curve.rate[0]) == (0, 0.0)
    for n, rate in zip(curve.nodes, curve.rate, strict=True):
        assert curve.rate_at(n) == rate
    for i in range(1, len(curve.nodes)):
        middle = (curve.nodes[i - 1] + curve.nodes[i]) // 2
        low, high = sorted(curve.rate[i - 1 : i + 1])
        assert low * (1 - 1e-12) <= curve.rate_at(middle) <= high * (1 + 1e-12)
    assert curve.scaled(2.0).rate_at(curve.max_nodes) == 2 * curve.rate_at(curve.max_nodes)


def test_a_straight_line_between_points():
    curve = ScalingCurve((2, 4, 8), (2.0, 3.0, 1.0))
    assert [curve.rate_at(n) for n in (0, 1, 2, 3, 4, 5, 8)] == [0.0, 1.0, 2.0, 2.5, 3.0, 2.5, 1.0]
    assert curve == ScalingCurve((0, 2, 4, 8), (0.0, 2.0, 3.0, 1.0))


@pytest.mark.parametrize(
    ("nodes", "rate", "sentence"),
    [
        ((), (), "curve: no points."),
        ((1, 2), (1.0,), "curve: 2 node counts but 1 rates."),
        ((2, 1), (1.0, 2.0), "curve: node counts must increase, but 1 follows 2."),
        ((2, 2), (1.0, 2.0), "curve: node counts must increase, but 2 follows 2."),
        ((-1, 2), (0.0, 2.0), "curve: negative node count -1."),
        ((1,), (-1.0,), "curve: the rate at 1 nodes is -1.0."),
        ((1,), (math.nan,), "curve: the rate at 1 nodes is nan."),
        ((1,), (math.inf,), "curve: the rate at 1 nodes is inf."),
        ((0, 1), (1.0, 2.0), "curve: the rate at 0 nodes is 1.0."),
    ],
)
def test_invalid_points_are_refused_with_a_reason(nodes, rate, sentence):
    with pytest.raises(InputError) as caught:
        ScalingCurve(nodes, rate)
    assert caught.value.what == sentence
    assert caught.value.next_step


@pytest.mark.parametrize("size", [-1, 5])
def test_a_curve_is_not_extrapolated(size):
    with pytest.raises(InputError, match=rf"the rate at {size} nodes is not known; the points go from 0 to 4"):
        ScalingCurve((1, 4), (1.0, 2.0)).rate_at(size)


@pytest.mark.parametrize("largest", [1, 2, 7, 8, 9, 16, 17, 1000])
def test_the_default_curve_follows_amdahls_law(largest):
    curve = amdahl(largest)
    assert curve.max_nodes == largest
    assert curve.rate_at(1) == pytest.approx(1.0)
    assert curve.rate_at(largest) == pytest.approx(largest / (0.98 + 0.02 * largest))
    steps = [b - a for a, b in pairwise(curve.rate_at(n) for n in range(largest + 1))]
    assert all(step > 0 for step in steps), "one more node always helps"
    assert all(b <= a + 1e-12 for a, b in pairwise(steps)), "but ever less"
