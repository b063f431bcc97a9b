"""What is kept of a job after its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from offcut.model.job import Job

Outcome = Literal["finished", "failed", "cancelled"]

#: The exit code of a job that was cancelled: what a shell says of a process that SIGTERM ended.
CANCELLED_CODE = 143


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job of the history: how far it came, and how it ended."""

    job: Job
    outcome: Outcome
    #: How it ended, in words.
    reason: str
    submitted_s: float
    ended_s: float
    #: Its last generation, and its stable steps and samples.
    generation: int = 0
    steps: int = 0
    samples: int = 0
    #: The loss of the last step that was reported; NaN if there was none.
    loss: float = float("nan")
    #: How many steps were done again, at least.
    redone_steps: int = 0
    resizes: int = 0
    failures: int = 0
    #: The exit code of its script, as a shell has it; None: ended under a version that did not note it.
    exit_code: int | None = None
