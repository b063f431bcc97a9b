"""Simulated measurements of throughput: the true rate with noise, through the meter that runs live."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from offcut.advisor.throughput_meter import Segment, ThroughputMeter
from offcut.model import events as ev


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementNoise:
    """The noise of measured step times.

    A step takes `step_s`; steps vary by `step_spread` (log-normal). The first ones of a generation are slower by
    `warm_up`, which halves with each step. All steps of one generation differ by a common factor of
    `generation_spread` (log-normal), because nodes and their neighbours differ.
    """

    step_s: float = 0.2
    step_spread: float = 0.05
    generation_spread: float = 0.02
    warm_up: float = 2.0


class NoisyMeter:
    """Draws the meter's results for generations of known true rates."""

    def __init__(self, noise: MeasurementNoise, seed: int) -> None:
        self._noise = noise
        self._random = Random(seed)

    def measure(self, job_id: str, generation: int, size: int, rate: float, now_s: float) -> ev.JobMeasured:
        """Draw what the controller is told of a generation's throughput, if the generation lasts long enough.

        Args:
            job_id: the job.
            generation: the generation that forms now.
            size: the number of its members.
            rate: its true rate, in samples/s.
            now_s: the time, in seconds.

        Returns:
            The event, at the time at which the measurement is done.
        """
        segment = self.segment(rate)
        return ev.JobMeasured(
            time_s=now_s + segment.span_s,
            job=job_id,
            generation=generation,
            size=size,
            rate=segment.rate,
            spread=segment.spread,
            stretches=segment.stretches,
            span_s=segment.span_s,
            settled=segment.settled,
        )

    def segment(self, rate: float) -> Segment:
        """Draw the first segment that the meter measures in a new generation.

        Args:
            rate: the job's true rate, in samples/s.

        Returns:
            The measured segment; its `span_s` is the time that measuring took.
        """
        noise, gauss = self._noise, self._random.gauss
        meter = ThroughputMeter()
        pace = noise.step_s * math.exp(noise.generation_spread * gauss(0.0, 1.0))
        # A step has a whole number of samples; this one is large enough that rounding does not matter.
        samples = 1_000_000
        clock_s = 0.0
        slower = noise.warm_up
        step = 0
        while True:
            segment = meter.add_report(clock_s, step, samples * step)
            if segment is not None:
                scale = rate * noise.step_s / samples
                return Segment(segment.rate * scale, segment.spread, segment.stretches, segment.span_s, segment.settled)
            step += 1
            clock_s += pace * (1.0 + slower) * math.exp(noise.step_spread * gauss(0.0, 1.0))
            slower /= 2
