"""The throughput meter: warm-up, spread, changes, and unusable reports."""

from __future__ import annotations

import math
import random

import pytest

from offcut.advisor.stragglers import Stragglers
from offcut.advisor.throughput_meter import Segment, ThroughputMeter

BATCH = 32


def feed(meter: ThroughputMeter, paces: list[float], *, start: tuple[float, int, int] = (100.0, 0, 0)) -> list[Segment]:
    """Add one report after each step. Return the segments."""
    clock_s, step, samples = start
    found = [meter.add_report(clock_s, step, samples)]
    for pace in paces:
        clock_s, step, samples = clock_s + pace, step + 1, samples + BATCH
        found.append(meter.add_report(clock_s, step, samples))
    return [segment for segment in found if segment is not None]


def noisy(pace: float, count: int, spread: float, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [pace * math.exp(spread * draw.gauss(0, 1)) for _ in range(count)]


def test_a_steady_job_is_measured_after_21_steps():
    meter = ThroughputMeter()
    assert feed(meter, [0.2] * 20) == []
    (segment,) = feed(ThroughputMeter(), [0.2] * 21)
    assert segment.rate == pytest.approx(BATCH / 0.2)
    assert segment.spread == pytest.approx(0, abs=1e-9)
    assert segment.settled


@pytest.mark.parametrize("halves_in", [1, 2])
def test_the_warm_up_is_left_out(halves_in):
    slower = [1 + 4 * 0.5 ** (i / halves_in) for i in range(200)]
    first = feed(ThroughputMeter(), [0.1 * factor for factor in slower])[0]
    assert first.rate == pytest.approx(BATCH / 0.1, rel=0.01)


def test_a_longer_segment_of_the_same_generation_has_more_stretches():
    counts = [segment.stretches for segment in feed(ThroughputMeter(), noisy(0.1, 700, 0.03))]
    assert counts == [8, 64, 512]


def test_where_steps_vary_twenty_are_needed():
    assert feed(ThroughputMeter(), noisy(0.1, 120, 0.3))[0].stretches >= 20


def test_several_steps_between_reports_give_their_exact_mean():
    meter = ThroughputMeter()
    found = [meter.add_report(0.2 * i, 5 * i, 5 * BATCH * i) for i in range(40)]
    (segment,) = [one for one in found if one]
    assert segment.rate == pytest.approx(5 * BATCH / 0.2)


def test_reports_between_steps_and_steps_done_again_change_nothing():
    meter = ThroughputMeter()
    found = []
    for i in range(60):
        found += [meter.add_report(0.1 * i, i, BATCH * i), meter.add_report(0.1 * i, i, BATCH * i)]
    meter.add_report(6.5, 40, BATCH * 40)
    found += [meter.add_report(6.5 + 0.1 * i, 40 + i, BATCH * (40 + i)) for i in range(1, 10)]
    rates = [one.rate for one in found if one]
    assert rates
    assert all(rate == pytest.approx(BATCH / 0.1) for rate in rates)


@pytest.mark.parametrize("factor", [0.9, 1.1, 2.0])
def test_a_change_is_noticed_within_five_blocks(factor):
    meter = ThroughputMeter()
    paces = noisy(0.1, 200, 0.05) + noisy(0.1 / factor, 100, 0.05, seed=2)
    changed = [segment for segment in feed(meter, paces) if segment.changed]
    assert len(changed) == 1
    assert changed[0].rate == pytest.approx(factor * BATCH / 0.1, rel=0.04)


def test_noise_alone_is_not_a_change():
    assert not any(segment.changed for segment in feed(ThroughputMeter(), noisy(0.1, 6000, 0.05)))


def test_a_job_that_never_leaves_its_warm_up_is_measured_in_the_end():
    # A hundredth quicker with every step, for ever.
    segments = feed(ThroughputMeter(), [0.99**i for i in range(420)])
    assert [segment.settled for segment in segments] == [False]


@pytest.mark.parametrize(("samples", "seconds", "words"), [(0, 0.1, "no samples"), (10**15, 0.1, "absurd")])
def test_unusable_reports_are_named(samples, seconds, words):
    meter = ThroughputMeter()
    assert not any(meter.add_report(i * seconds, i, i * samples) for i in range(40))
    assert words in meter.problem


def test_negative_and_late_reports_never_make_a_rate():
    meter = ThroughputMeter()
    assert not any(meter.add_report(100.0 - i, i, BATCH * i) for i in range(60))
    assert not any(meter.add_report(200.0 + i, 100 + i, -BATCH * i) for i in range(60))
    assert meter.problem


class TestStragglers:
    def test_a_slow_node_is_named_once(self):
        stragglers = Stragglers()
        named = [
            stragglers.add_report(node, 0.05 if node != "n3" else 0.09) for _ in range(5) for node in ("n1", "n2", "n3")
        ]
        assert [name for name in named if name] == ["n3"]
        assert stragglers.slow["n3"] == pytest.approx(1.8)

    def test_a_node_that_is_as_fast_as_the_others_again_is_not_slow_any_more(self):
        stragglers = Stragglers()

        def report(own_s):
            return [
                name
                for node in ("n1", "n2", "n3")
                if (name := stragglers.add_report(node, own_s if node == "n3" else 0.05))
            ]

        assert [name for _ in range(3) for name in report(0.09)] == ["n3"]
        assert [name for _ in range(2) for name in report(0.05)] == []
        assert set(stragglers.slow) == {"n3"}
        report(0.05)
        assert not stragglers.slow
        assert [name for _ in range(3) for name in report(0.09)] == ["n3"], "and may be named again"

    def test_a_slow_job_has_no_slow_node(self):
        stragglers = Stragglers()
        paces = [0.05] * 4 + [0.2] * 4
        assert not any(stragglers.add_report(node, pace) for pace in paces for node in ("n1", "n2", "n3"))

    def test_a_node_that_is_slow_for_a_moment_is_not_named(self):
        stragglers = Stragglers()
        for i in range(9):
            assert not stragglers.add_report("n1", 0.5 if i % 3 == 0 else 0.05)
            assert not stragglers.add_report("n2", 0.05)

    def test_a_single_node_is_compared_with_no_other(self):
        found = Stragglers()
        assert not any(found.add_report("n1", 0.1) for _ in range(9))
