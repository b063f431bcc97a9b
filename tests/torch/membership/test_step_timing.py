"""The prediction of the next step boundary."""

from __future__ import annotations

import pytest

from offcut.torch.membership import step_timing
from offcut.torch.membership.step_timing import StepTiming


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [100.0]
    monkeypatch.setattr(step_timing.time, "monotonic", lambda: now_s[0])
    return now_s


def pass_steps(timing: StepTiming, clock: list[float], *steps_s: float) -> None:
    for step_s in steps_s:
        clock[0] += step_s
        timing.boundary()


def test_no_boundary_is_predicted_before_a_step_was_measured(clock: list[float]) -> None:
    timing = StepTiming()
    assert timing.next_boundary_s == 0.0
    timing.boundary()
    assert timing.next_boundary_s == 0.0


def test_the_next_boundary_comes_after_the_shortest_of_the_last_steps(clock: list[float]) -> None:
    timing = StepTiming()
    timing.boundary()
    pass_steps(timing, clock, 0.1, 0.5, 0.4, 0.6)
    assert timing.next_boundary_s == pytest.approx(clock[0] + 0.4)


def test_a_new_generation_is_predicted_from_the_last_one_until_it_has_steps(clock: list[float]) -> None:
    timing = StepTiming()
    timing.boundary()
    pass_steps(timing, clock, 0.5, 0.5)
    timing.interrupt()
    assert timing.next_boundary_s == 0.0
    clock[0] += 7.0  # forming is not a step
    timing.boundary()
    assert timing.next_boundary_s == pytest.approx(clock[0] + 0.5)
    pass_steps(timing, clock, 0.2)
    assert timing.next_boundary_s == pytest.approx(clock[0] + 0.2)
