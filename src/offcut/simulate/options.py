"""The assumptions of a replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from offcut.errors import InputError
from offcut.simulate.noisy_meter import MeasurementNoise

#: How a resize is charged. `stall`: the job makes no progress while it resizes. `published`, BFTrainer's accounting:
#: the cost times the rate at the old size is subtracted from the progress, so that growing from 0 nodes is free.
Accounting = Literal["stall", "published"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeCost:
    """Seconds that each step of a resize takes.

    `grow_s`, `shrink_s`: seconds of progress that a resize costs; None: each job's own. `boot_s`: from the claim of a
    node until its agent answers; `start_s`: from the order to start a worker until it is ready. During both, the job
    trains on with the members that it has.
    """

    grow_s: float | None = None
    shrink_s: float | None = None
    boot_s: float = 0.0
    start_s: float = 0.0


#: Named costs. `published`: BFTrainer's restart of all processes. `measured`: in-process resize by offcut.torch, the
#: default costs of `control.Settings`, with a worker that takes 5 s to import torch and build its model.
NAMED_COSTS = {
    "listed": ResizeCost(),
    "published": ResizeCost(grow_s=18.0, shrink_s=12.0),
    "measured": ResizeCost(grow_s=0.3, shrink_s=0.2, boot_s=1.0, start_s=5.0),
}


def parse_cost(text: str) -> ResizeCost:
    """Read the costs of a resize.

    Args:
        text: `listed`, `published`, `measured`, or `GROW:SHRINK` in seconds (`18:12`; `5` is both).

    Returns:
        The costs.

    Raises:
        InputError: the text has another form, or a number is negative.
    """
    if text in NAMED_COSTS:
        return NAMED_COSTS[text]
    parts = text.split(":")
    try:
        grow_s, shrink_s = float(parts[0]), float(parts[-1])
    except ValueError:
        grow_s = shrink_s = -1.0
    if len(parts) > 2 or not 0 <= grow_s < 1e9 or not 0 <= shrink_s < 1e9:
        raise InputError(
            f"--resize-cost: '{text}' is not a valid cost.",
            next_step="Write listed, published, measured, or seconds to grow and to shrink such as 18:12.",
        )
    return ResizeCost(grow_s=grow_s, shrink_s=shrink_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The assumptions of one replay; its other inputs are the trace and the job list."""

    #: `exact`, a name that `offcut.allocate.policy` knows, or `FILE.py:FUNCTION`.
    policy: str = "exact"
    horizon_s: float = 120.0
    cost: ResizeCost = ResizeCost()
    accounting: Accounting = "stall"
    #: The largest number of jobs at once; None: the controller admits jobs while a node is worth more to a new job.
    concurrency: int | None = None
    #: True: the job list starts again when it is used up, and its submission times are ignored.
    repeat: bool = False
    #: Where nodes that are interchangeable go: `together` (nodes that became idle together) or `random`.
    placement: Literal["together", "random"] = "together"
    #: Seconds between saves of a job's state; the work since the last save is lost with the job's last node. 0: the
    #: last node saves the state while it is being released.
    commit_s: float = 0.0
    #: The curve model that estimates the jobs' curves from measurements: a name that `offcut.advisor.load` knows, or
    #: `FILE.py:FUNCTION`. `oracle`: the curves are known.
    profiler: str = "oracle"
    #: True: jobs of one curve form a family, whose measurements are shared.
    families: bool = True
    #: The noise of the curve model's measurements.
    noise: MeasurementNoise = field(default_factory=MeasurementNoise)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("--horizon", self.horizon_s, 1e-3),
            ("--concurrency", 1 if self.concurrency is None else self.concurrency, 1),
            ("--boot", self.cost.boot_s, 0.0),
            ("--worker-start", self.cost.start_s, 0.0),
            ("--commit", self.commit_s, 0.0),
        ):
            if not least <= value < 1e9:
                raise InputError(f"{name}: {value:g} is out of range.", next_step=f"Give {least:g} or more.")
