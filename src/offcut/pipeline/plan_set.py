"""The plans of one job, one per number of devices: which sizes it may have, and how it runs at each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offcut.errors import InputError
from offcut.model import ScalingCurve, Sizes
from offcut.pipeline.plan import PLAN_FORMAT, Plan, Stage, plan_from_json

SET_FORMAT = "offcut-plans"
SET_VERSION = 1


@dataclass(frozen=True, slots=True)
class PlanSet:
    """The plans of one job, in increasing order of devices.

    All are of one model and one batch, because a resize must not change what is computed.

    Raises:
        InputError: the plans differ in model or batch, or two are for the same number of devices.
    """

    plans: tuple[Plan, ...]

    def __post_init__(self) -> None:
        if not self.plans:
            raise InputError("the plan file has no plan.", next_step="Write one with `offcut plan ... --save FILE`.")
        first = self.plans[0]
        for plan in self.plans:
            if plan.devices != sum(plan.replicas):
                raise InputError(f"the plan for {plan.devices} devices has {sum(plan.replicas)}.", next_step=_AGAIN)
            if plan.batch != first.batch:
                raise InputError(
                    f"the plans have batches of {first.batch} and {plan.batch}: a resize would change the training.",
                    next_step="Plan all sizes with one --batch.",
                )
            if plan.cuts[-1] != first.cuts[-1]:
                raise InputError(
                    f"the plans cover {first.cuts[-1]} and {plan.cuts[-1]} layers: they are of different models.",
                    next_step=_AGAIN,
                )
        for smaller, larger in zip(self.plans, self.plans[1:], strict=False):
            if smaller.devices >= larger.devices:
                raise InputError(f"two plans for {larger.devices} devices.", next_step="Keep one of them.")

    @property
    def batch(self) -> int:
        """Samples of one step."""
        return self.plans[0].batch

    @property
    def layers(self) -> int:
        """The number of the model's layers."""
        return self.plans[0].cuts[-1]

    @property
    def devices(self) -> tuple[int, ...]:
        """The numbers of devices that have a plan, increasing."""
        return tuple(plan.devices for plan in self.plans)

    def plan_for(self, devices: int) -> Plan:
        """Return the plan for a number of devices.

        Args:
            devices: the number of devices.

        Returns:
            The plan.

        Raises:
            InputError: the set has no plan for this number.
        """
        for plan in self.plans:
            if plan.devices == devices:
                return plan
        raise InputError(
            f"no plan is for {devices} devices; there are plans for {', '.join(map(str, self.devices))}.",
            next_step="Give the job only sizes that have a plan.",
        )

    def one_device_plan(self) -> Plan:
        """Return the plan for one device.

        Returns:
            If the set has none, a plan with all layers on one device, even if they do not fit its memory.
        """
        if self.devices[0] == 1:
            return self.plans[0]
        given = self.plans[0]
        stage = Stage(
            first_layer=0, end_layer=self.layers, place=0, hop_s=0.0, sync_s=0.0,
            **{name: sum(getattr(part, name) for part in given.stages) for name in _ADDITIVE},
        )  # fmt: skip
        step_s = given.micro_batches * (stage.forward_s + stage.backward_s)
        return Plan(
            model=given.model, devices=1, batch=given.batch, micro_batch=given.micro_batch, schedule="1f1b",
            replicas=(1,), stages=(stage,), step_s=step_s, bound_s=step_s, bubble_of_step=0.0, bubble_of_span=0.0,
            peak_bytes=(stage.state_bytes + stage.stored_bytes,), peak_in_flight=(1,),
        )  # fmt: skip

    def sizes(self, ranks_per_node: int = 1) -> Sizes:
        """Return the node counts that have a plan.

        Args:
            ranks_per_node: devices of each node.

        Returns:
            The sizes that a job with these plans may have.

        Raises:
            InputError: no plan is for a multiple of `ranks_per_node` devices.
        """
        counts = tuple(n // ranks_per_node for n in self.devices if n % ranks_per_node == 0)
        if not counts:
            raise InputError(
                f"no plan is for a multiple of {ranks_per_node} devices, the number on each node.",
                next_step="Plan for such numbers, or change ranks_per_node.",
            )
        return Sizes(counts)

    def curve(self, ranks_per_node: int = 1) -> ScalingCurve:
        """Return the planned scaling curve.

        Args:
            ranks_per_node: devices of each node.

        Returns:
            Throughput (samples/s) by node count.

        Raises:
            InputError: no plan is for a multiple of `ranks_per_node` devices.
        """
        sizes = tuple(self.sizes(ranks_per_node).allowed)
        return ScalingCurve(sizes, tuple(self.plan_for(n * ranks_per_node).samples_per_s for n in sizes))

    def to_json(self) -> dict[str, Any]:
        """Return the set as a JSON document."""
        return {"format": SET_FORMAT, "version": SET_VERSION, "plans": [plan.to_json() for plan in self.plans]}


_AGAIN = "Plan again from a profile of this model."
_ADDITIVE = ("forward_s", "backward_s", "weight_grad_s", "parameter_bytes", "state_bytes", "stored_bytes")


def plan_set(plans: Iterable[Plan]) -> PlanSet:
    """Make a set of plans.

    Args:
        plans: plans in any order; a plan may occur several times, as on a curve.

    Returns:
        The plans, one per number of devices.
    """
    return PlanSet(tuple(plan for _, plan in sorted({plan.devices: plan for plan in plans}.items())))


def read_plans(path: Path) -> PlanSet:
    """Read the plans in a file: a set of them, or a single one.

    Args:
        path: a file that `offcut plan --save` wrote.

    Returns:
        The plans.

    Raises:
        InputError: the file cannot be read or has no plans; it names the file.
    """
    try:
        document = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}).", next_step="Check the path.") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}).", next_step=_AGAIN) from None
    if isinstance(document, dict) and document.get("format") == PLAN_FORMAT:
        return PlanSet((plan_from_json(document, source=str(path)),))
    if not isinstance(document, dict) or document.get("format") != SET_FORMAT:
        raise InputError(f"{path}: no plans.", next_step="Give what `offcut plan ... --save FILE` wrote.")
    if document.get("version") != SET_VERSION:
        raise InputError(f"{path}: version {document.get('version')}.", next_step="Plan again with this program.")
    rows = document.get("plans")
    if not isinstance(rows, list):
        raise InputError(f'{path}: "plans" is not a list.', next_step=_AGAIN)
    try:
        return PlanSet(tuple(plan_from_json(row, source=f"plan {i}") for i, row in enumerate(rows)))
    except InputError as error:
        raise InputError(f"{path}: {error.what}", next_step=error.next_step) from None
