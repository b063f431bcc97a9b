"""A plan: how a model runs at one size. `offcut plan` writes it and the torch runtime reads it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from offcut.errors import InputError
from offcut.pipeline.layer_profile import Floats
from offcut.pipeline.program import Program
from offcut.pipeline.schedules import Shape, schedule_named
from offcut.pipeline.simulator import StepTimeline, simulate
from offcut.pipeline.stage_costs import StageCosts

PLAN_FORMAT = "offcut-plan"
PLAN_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Layers `[first_layer, end_layer)` on place `place`; seconds for one micro-batch, bytes of one device."""

    first_layer: int
    end_layer: int
    place: int
    forward_s: float
    backward_s: float
    weight_grad_s: float
    #: One transfer to the next stage or back; 0 for the last.
    hop_s: float
    sync_s: float
    parameter_bytes: float
    state_bytes: float
    stored_bytes: float
    #: Tensors that skip over the cut behind this stage and are carried through the next one.
    skips: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Stages x replicas with a schedule, and the simulator's figures for it.

    `replicas[q]` devices hold place q; place q's devices follow those of place q - 1. One place: data parallel.
    `batch` and `micro_batch` are in samples. `step_s` is the simulated step, `bound_s` its lower bound. The bubbles are
    idle device time as a share of the step and of the devices' own spans. `peak_bytes` and `peak_in_flight` are per
    device, in device order: weights, gradients, optimizer state and activations; micro-batches kept.
    """

    model: str
    devices: int
    batch: int
    micro_batch: int
    schedule: str
    replicas: tuple[int, ...]
    stages: tuple[Stage, ...]
    #: True if transfers overlap with computing.
    overlap: bool = True
    #: The largest number of micro-batches in flight per replica of each place; empty if memory does not limit it.
    caps: tuple[int, ...] = ()
    step_s: float
    bound_s: float
    bubble_of_step: float
    bubble_of_span: float
    peak_bytes: tuple[float, ...]
    peak_in_flight: tuple[int, ...]

    @property
    def micro_batches(self) -> int:
        """Micro-batches of one step."""
        return self.batch // self.micro_batch

    @property
    def samples_per_s(self) -> float:
        """Throughput in samples per second."""
        return self.batch / self.step_s

    @property
    def memory_bytes(self) -> float:
        """Bytes of memory that the fullest device needs."""
        return max(self.peak_bytes)

    @property
    def cuts(self) -> tuple[int, ...]:
        """Stage s has the layers `[cuts[s], cuts[s + 1])`."""
        return (0, *(stage.end_layer for stage in self.stages))

    @property
    def family(self) -> str:
        """`data parallel`, `pipeline`, `pipeline x replicas` or `uneven replicas`."""
        if len(self.replicas) == 1:
            return "data parallel"
        if max(self.replicas) == 1:
            return "pipeline"
        return "pipeline x replicas" if len(set(self.replicas)) == 1 else "uneven replicas"

    @property
    def label(self) -> str:
        """A short name, such as `1f1b-link 4 x 2`."""
        if len(self.replicas) == 1:
            return f"data parallel x {self.replicas[0]}"
        if len(set(self.replicas)) == 1:
            return f"{self.schedule} {len(self.stages)} stages on {len(self.replicas)} x {self.replicas[0]}"
        return f"{self.schedule} " + "-".join(map(str, self.replicas))

    def shape(self) -> Shape:
        """Return the pipeline's shape, from which its schedule lays out the program."""
        return Shape(
            ranks=len(self.replicas),
            micro_batches=self.micro_batches,
            replicas=self.replicas,
            chunks=len(self.stages) // len(self.replicas),
            stage_s=tuple(stage.forward_s + stage.backward_s for stage in self.stages),
            hop_s=tuple(stage.hop_s for stage in self.stages[:-1]),
            caps=self.caps,
        )

    def costs(self) -> StageCosts:
        """Return the costs of the stages, as the simulator takes them."""

        def column(name: str) -> Floats:
            return np.array([getattr(stage, name) for stage in self.stages], dtype=float)

        names = ("forward_s", "backward_s", "weight_grad_s", "sync_s", "stored_bytes", "state_bytes", "parameter_bytes")
        return StageCosts(hop_s=column("hop_s")[:-1], **{name: column(name) for name in names})

    def timeline(self) -> StepTimeline:
        """Return a new simulation of the plan, operation by operation."""
        sends = schedule_named(self.schedule).sends if self.overlap else "blocking"
        return simulate(self.program(), self.costs(), sends=sends, occupancy=True)

    def program(self) -> Program:
        """Return the order in which every rank computes."""
        return schedule_named(self.schedule).program(self.shape())

    def to_json(self) -> dict[str, Any]:
        """Return the plan as a JSON document, with derived values for readers that do not compute them."""
        body = asdict(self)
        body["stages"] = [asdict(stage) for stage in self.stages]
        return {
            "format": PLAN_FORMAT,
            "version": PLAN_VERSION,
            **body,
            "family": self.family,
            "label": self.label,
            "micro_batches": self.micro_batches,
            "samples_per_s": self.samples_per_s,
            "memory_bytes": self.memory_bytes,
        }


def plan_from_json(document: Any, *, source: str = "plan") -> Plan:
    """Read a plan from its JSON document.

    Args:
        document: the parsed JSON.
        source: what messages call it.

    Raises:
        InputError: it is not a plan of this version.
    """
    if not isinstance(document, dict) or document.get("format") != PLAN_FORMAT:
        raise InputError(f"{source}: not a plan.", next_step="Give what `offcut plan --json` wrote for one size.")
    if document.get("version") != PLAN_VERSION:
        raise InputError(f"{source}: version {document.get('version')}.", next_step="Plan again with this program.")
    schedule_named(str(document.get("schedule")))
    try:
        stages = tuple(
            Stage(**{**{k: row[k] for k in Stage.__slots__ if k in row}, "skips": tuple(row.get("skips", ()))})
            for row in document["stages"]
        )
        fields = {k: document[k] for k in Plan.__slots__ if k in document}
        for name in ("replicas", "caps", "peak_bytes", "peak_in_flight"):
            fields[name] = tuple(fields.get(name, ()))
        plan = Plan(**{**fields, "stages": stages})
    except (KeyError, TypeError) as error:
        raise InputError(f"{source}: a field is missing or wrong ({error}).", next_step="Plan again.") from None
    if len(plan.stages) % max(1, len(plan.replicas)) or plan.batch % max(1, plan.micro_batch):
        raise InputError(f"{source}: stages, replicas or batches do not divide.", next_step="Plan again.")
    return plan
