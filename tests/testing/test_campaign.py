"""The campaign of faults: seeds in which nothing breaks, the same again, and a defect that it finds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from offcut.testing.campaign import member
from offcut.testing.campaign.campaign import run_seed
from offcut.testing.campaign.shrink import shortest


@pytest.mark.parametrize("seed", [*range(1, 5), *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(5, 9))])
def test_ten_thousand_events_break_nothing(seed: int) -> None:
    result = run_seed(seed)
    assert result.violations == []
    assert result.events >= 10_000
    assert result.faults.total() >= 0.05 * result.events


def test_a_seed_is_the_same_again_in_another_process() -> None:
    program = "from offcut.testing.campaign.campaign import run_seed; print(run_seed(2, events=1, until_s=60).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


@pytest.mark.ci
def test_a_defect_is_found_and_its_schedule_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that leave do not save what only they have."""
    monkeypatch.setattr(member, "saves_replica", lambda departure: False)
    monkeypatch.setattr(member, "saves_replica_in_time", lambda worker, current, newest: False)
    failed = next(result for seed in range(1, 6) if (result := run_seed(seed)).violations)
    assert "no member died without warning" in failed.violations[0]
    found = shortest(failed, limit_s=10.0)
    assert found.violations
    assert len(found.actions) <= len(failed.actions)
