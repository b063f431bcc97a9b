"""Replays with unknown curves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offcut.errors import InputError
from offcut.model import ScalingCurve
from offcut.simulate.noisy_meter import MeasurementNoise, NoisyMeter
from offcut.simulate.options import ReplayOptions, parse_cost
from offcut.simulate.replay import replay

#: They differ in what they can use: a policy that takes them for alike gives half of the nodes away for little.
CURVES = {
    "linear": ScalingCurve((1, 32), (50.0, 1600.0)),
    "flat": ScalingCurve((1, 3, 32), (900.0, 2500.0, 2600.0)),
}
HOURS = 6


def run(windows, make_job, profiler: str, **fields):
    jobs = [
        make_job(name, curve=curve, curve_name=name, largest=32, samples=900 * curve.rate_at(8))
        for name, curve in CURVES.items()
    ]
    options = ReplayOptions(concurrency=4, repeat=True, cost=parse_cost("measured"), profiler=profiler)
    return replay(windows, jobs, replace(options, **fields), start_s=0.0, end_s=3600.0 * HOURS, compare=False)


def test_learned_curves_train_nearly_as_much_as_known_curves(busy_windows, make_job):
    oracle, ours, linear = (run(busy_windows, make_job, name) for name in ("oracle", "gp", "linear"))
    assert ours.work_node_h > 0.95 * oracle.work_node_h
    assert ours.work_node_h > 1.05 * linear.work_node_h
    assert 0 < ours.probing_share < 0.02
    assert oracle.probing_share == linear.probing_share == 0


def test_without_families_every_job_is_measured_separately(busy_windows, make_job):
    alone = run(busy_windows, make_job, "gp", families=False)
    together = run(busy_windows, make_job, "gp")
    assert alone.probing_share > 2 * together.probing_share


def test_the_seed_alone_decides_the_noise(busy_windows, make_job):
    first, again, other = (run(busy_windows, make_job, "gp", seed=seed) for seed in (1, 1, 2))
    assert first.work_node_h == again.work_node_h != other.work_node_h


def test_measurement_noise_passes_through_the_meter():
    found = [NoisyMeter(MeasurementNoise(), seed).segment(1000.0) for seed in range(200)]
    assert all(segment.settled and 3.0 < segment.span_s < 20.0 for segment in found)
    assert sum(segment.rate for segment in found) / 200 == pytest.approx(1000.0, rel=0.01)
    still = NoisyMeter(MeasurementNoise(step_spread=0.0, generation_spread=0.0, warm_up=0.0), 1).segment(1000.0)
    assert still.rate == pytest.approx(1000.0)


def test_an_unknown_profiler_is_refused(busy_windows, make_job):
    with pytest.raises(InputError, match="unknown profiler 'best'"):
        run(busy_windows, make_job, "best")
