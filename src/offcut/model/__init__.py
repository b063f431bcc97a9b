"""The nouns of offcut: frozen dataclasses that check their own validity and have no other behaviour."""

from offcut.model.allocation import (
    Allocation,
    AllocationProblem,
    CostModel,
    JobRequest,
    NodeClass,
    Objective,
    QuotaGroup,
)
from offcut.model.curve import ScalingCurve, amdahl
from offcut.model.job import Job, JobMode
from offcut.model.sizes import Sizes
from offcut.model.sweep import Sweep
from offcut.model.window import Window

__all__ = [
    "Allocation",
    "AllocationProblem",
    "CostModel",
    "Job",
    "JobMode",
    "JobRequest",
    "NodeClass",
    "Objective",
    "QuotaGroup",
    "ScalingCurve",
    "Sizes",
    "Sweep",
    "Window",
    "amdahl",
]
