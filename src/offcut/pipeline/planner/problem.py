"""The planning problem: a model, a cluster and a batch."""

from __future__ import annotations

from dataclasses import dataclass, field

from offcut.errors import InputError
from offcut.pipeline.hardware import Hardware
from offcut.pipeline.layer_profile import LayerProfile
from offcut.pipeline.schedules import SCHEDULES, Schedule, schedule_named

#: Explored unless the caller names others: synchronous, and runnable on PyTorch as they are.
DEFAULT_SCHEDULES = ("gpipe", "1f1b", "1f1b-so", "1f1b-link", "interleaved", "zb-h1")
#: The same where a device that sends or receives does not compute.
DEFAULT_BLOCKING_SCHEDULES = ("gpipe", "1f1b-sno")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningProblem:
    """A training step to plan, on up to as many devices as the hardware has.

    Args:
        profile: the model's layers.
        hardware: the cluster.
        batch: samples of one step.
        micro_batches: the micro-batch sizes (samples) to try; those that do not divide `batch` are left out.
        schedules: names of the schedules to try; empty: the default ones (the zero-bubble schedule only where weight
            gradients were measured).
        kinds: the profiles of device kinds that have their own, by kind.
        stages: only plans with this many places in a row; None: any number.

    Raises:
        InputError: no micro-batch size divides the batch, a schedule is unknown, or there are fewer layers than stages.
    """

    profile: LayerProfile
    hardware: Hardware
    batch: int
    micro_batches: tuple[int, ...]
    schedules: tuple[str, ...] = ()
    kinds: dict[str, LayerProfile] = field(default_factory=dict)
    stages: int | None = None

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InputError(f"batch {self.batch} is below 1.", next_step="Give the samples of one step.")
        if not any(self.batch % size == 0 for size in self.micro_batches if size > 0):
            sizes = ", ".join(map(str, self.micro_batches))
            raise InputError(
                f"no micro-batch size ({sizes}) divides the batch of {self.batch}.",
                next_step="Choose a batch that is a multiple of one of them.",
            )
        for name in self.schedules:
            schedule_named(name)
        layers = len(self.profile.layers)
        if self.stages is not None and not 1 <= self.stages <= layers:
            raise InputError(
                f"{self.stages} stages asked for, but {self.profile.model} has {layers} layers to cut between.",
                next_step=f"Ask for 1 to {layers} stages.",
            )

    @property
    def tried_schedules(self) -> tuple[Schedule, ...]:
        """The schedules to try, in order."""
        if self.schedules:
            return tuple(schedule_named(name) for name in self.schedules)
        if not self.hardware.overlap:
            return tuple(SCHEDULES[name] for name in DEFAULT_BLOCKING_SCHEDULES)
        names = [n for n in DEFAULT_SCHEDULES if self.profile.weight_grad_measured or n != "zb-h1"]
        return tuple(SCHEDULES[name] for name in names)
