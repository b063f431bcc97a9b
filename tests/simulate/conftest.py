"""Small traces and job lists that replays are tested with."""

from __future__ import annotations

import pytest

from offcut.model import ScalingCurve
from offcut.traces.generate import generate
from offcut.traces.job_list import ListedJob
from offcut.traces.window_process import SUMMIT
from offcut.traces.windows import Windows

#: Speed-up on n nodes: 1, 1.9, 3.4, 6.
CURVE = ScalingCurve((1, 2, 4, 8), (100.0, 190.0, 340.0, 600.0))


@pytest.fixture
def make_job():
    def make(
        job_id: str = "a", *, samples: float = 1e6, submit_s: float = 0.0, largest: int = 8, **fields
    ) -> ListedJob:
        curve = fields.pop("curve", CURVE)
        return ListedJob(
            id=job_id,
            curve_name=fields.pop("curve_name", "curve"),
            curve=curve,
            submit_s=submit_s,
            min_nodes=fields.pop("smallest", 1),
            max_nodes=largest,
            samples=samples,
            grow_cost_s=fields.pop("grow_s", 10.0),
            shrink_cost_s=fields.pop("shrink_s", 4.0),
        )

    return make


@pytest.fixture(scope="session")
def busy_windows() -> Windows:
    """A day of 60 nodes with windows like Summit's, on a machine small enough for a test."""
    return generate(60, 86_400.0, 3, SUMMIT)
