"""Events about the training of jobs: how far it is, how fast it goes, when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNearsEnd:
    """The job will have trained in `left_s` seconds at its present rate: see `control.nears_end`."""

    time_s: float
    job: str
    left_s: float = 0.0
    kind: Literal["job_nears_end"] = "job_nears_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrained:
    """The members of `generation` have passed the job's last step; their scripts run to their end."""

    time_s: float
    job: str
    generation: int
    #: Steps of the whole training; 0: not said.
    step: int = 0
    samples: int = 0
    kind: Literal["job_trained"] = "job_trained"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgressed:
    """The job's stable steps and samples so far, and the loss of the last of them. Not journalled."""

    time_s: float
    job: str
    generation: int
    step: int
    samples: int
    loss: float
    #: Steps and samples of the whole training, if it goes on like this; None: not known.
    total_steps: int | None = None
    total_samples: int | None = None
    kind: Literal["job_progressed"] = "job_progressed"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMeasured:
    """A segment of training in one generation of `size` nodes: see `advisor.throughput_meter.Segment`."""

    time_s: float
    job: str
    generation: int
    size: int
    #: Samples/s of the whole job, and its deviation relative to that.
    rate: float
    spread: float = 0.0
    stretches: int = 1
    #: Seconds from the generation's first step to this.
    span_s: float = 0.0
    settled: bool = True
    changed: bool = False
    #: A node that slows the whole generation down; empty if none is known.
    slow_node: str = ""
    kind: Literal["job_measured"] = "job_measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNoted:
    """A message for the job's user: a checkpoint could not be written, for example."""

    time_s: float
    job: str
    text: str
    kind: Literal["job_noted"] = "job_noted"
