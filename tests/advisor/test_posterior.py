"""The Gaussian process over a job's efficiency."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.advisor.posterior import FIRST_SHAPE, Point, fit, log_efficiency, merged, points_of

SIZES = points_of(1, 64)


def points(curve, *sizes: int, variance: float = 0.02**2) -> tuple[Point, ...]:
    return tuple(Point(n, log_efficiency(n, curve(n)), variance) for n in sizes)


def rates(found) -> dict[int, float]:
    return dict(zip(found.sizes, found.rate, strict=True))


def amdahl(n: float) -> float:
    return 500 * n / (1 + 0.03 * (n - 1))


def plateau(n: float) -> float:
    return 500.0 * min(n, 6)


def test_points_are_two_for_each_doubling_and_reach_both_ends():
    assert points_of(1, 64) == (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64)
    assert points_of(3, 10) == (3, 4, 5, 6, 7, 8, 9, 10)
    assert points_of(5, 5) == (5,)


def test_without_points_the_posterior_is_the_expected_shape():
    found = rates(fit((), SIZES))
    assert found[1] == pytest.approx(1)
    assert found[64] == pytest.approx(64 * math.exp(FIRST_SHAPE[6]))


def test_the_posterior_goes_through_the_points_and_is_uncertain_elsewhere():
    found = fit(points(amdahl, 4, 16), SIZES)
    assert rates(found)[4] == pytest.approx(amdahl(4), rel=0.02)
    assert rates(found)[16] == pytest.approx(amdahl(16), rel=0.02)
    deviation = dict(zip(found.sizes, found.deviation, strict=True))
    assert deviation[4] < deviation[8] < deviation[64]


@pytest.mark.parametrize(("curve", "typical"), [(amdahl, 0.06), (plateau, 0.12)])
def test_a_ladder_of_sizes_predicts_the_others(curve, typical):
    found = rates(fit(points(curve, 64, 21, 7, 2, 1), SIZES))
    errors = sorted(abs(found[n] / curve(n) - 1) for n in SIZES)
    assert errors[len(errors) // 2] < typical
    assert errors[-1] < 0.2


def test_sizes_other_than_powers_of_two_may_be_worse_and_inform_their_neighbours():
    found = rates(fit(points(lambda n: amdahl(n) * (1.0 if n in (4, 8, 16, 32) else 0.8), 4, 8, 12, 24), SIZES))
    for n in (9, 15, 17):
        assert found[n] == pytest.approx(0.8 * amdahl(n), rel=0.05)
    assert found[16] / 16 > 1.1 * found[17] / 17


def test_sizes_other_than_powers_of_two_are_never_better():
    """A plateau that was measured at powers of two and, near its knee, at other sizes looks like that."""
    found = rates(fit(points(plateau, 64, 21, 7, 2, 1), SIZES))
    assert found[16] == pytest.approx((found[15] + found[17]) / 2, rel=0.02)


def test_measuring_one_size_often_makes_it_certain():
    once, often = (fit(points(amdahl, *[8] * count), SIZES) for count in (1, 16))
    assert often.deviation[SIZES.index(8)] < once.deviation[SIZES.index(8)]


def test_one_point_per_size_is_the_weighted_mean():
    assert merged([Point(2, 1.0, 0.1), Point(2, 4.0, 0.2), Point(1, 0.0, 0.3)]) == (
        Point(1, 0.0, 0.3),
        Point(2, pytest.approx(2.0), pytest.approx(1 / 15)),
    )


@given(
    st.dictionaries(st.integers(1, 512), st.floats(1e-6, 1e11), max_size=12),
    st.integers(1, 8),
    st.integers(8, 512),
)
@settings(max_examples=60, deadline=None)
def test_any_measurements_give_a_valid_curve(seen, smallest, largest):
    found = fit(
        tuple(Point(n, log_efficiency(n, rate), 4e-4) for n, rate in seen.items()), points_of(smallest, largest)
    )
    assert found.curve.max_nodes == largest
    assert all(math.isfinite(rate) and rate > 0 for rate in found.rate)
    assert all(deviation >= 0 for deviation in found.deviation)
