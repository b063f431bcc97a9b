"""The plans that were not chosen: the best of every schedule and family, with the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass

from offcut.pipeline.plan import Plan
from offcut.pipeline.schedules import schedule_named


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedPlan:
    """The best plan of a schedule and family that was not chosen, and the reason in words.

    `step_s` (seconds) and `memory_bytes` (of the fullest device) are None if no such plan was simulated.
    """

    schedule: str
    family: str
    label: str
    step_s: float | None
    memory_bytes: float | None
    reason: str


class RejectedPlans:
    """Collects, per schedule and family, the best plan that was simulated, or the reason why none was."""

    def __init__(self) -> None:
        self._ran: dict[tuple[str, str], Plan] = {}
        self._too_big: dict[tuple[str, str], tuple[float, Plan]] = {}
        self._pruned: dict[tuple[str, str], float] = {}
        self._refused: dict[tuple[str, str], str] = {}
        self._contiguous = math.inf

    def record_simulated(self, plan: Plan) -> None:
        """Record a plan that was simulated and fits the memory.

        Args:
            plan: the plan.
        """
        key = (plan.schedule, plan.family)
        if key not in self._ran or plan.step_s < self._ran[key].step_s:
            self._ran[key] = plan
        if _contiguous(plan):
            self._contiguous = min(self._contiguous, plan.step_s)

    def record_too_big(self, plan: Plan, over_bytes: float) -> None:
        """Record a plan that needs more memory than a device has.

        Args:
            plan: the plan.
            over_bytes: bytes beyond the memory of the fullest device.
        """
        key = (plan.schedule, plan.family)
        if key not in self._too_big or over_bytes < self._too_big[key][0]:
            self._too_big[key] = (over_bytes, plan)

    def record_pruned(self, schedule: str, family: str, bound_s: float) -> None:
        """Record a candidate that was not simulated because of its lower bound.

        Args:
            schedule: its schedule.
            family: its way to divide the devices.
            bound_s: its lower bound, in seconds.
        """
        key = (schedule, family)
        self._pruned[key] = min(bound_s, self._pruned.get(key, math.inf))

    def record_refused(self, schedule: str, family: str, reason: str) -> None:
        """Record that a schedule cannot run.

        Args:
            schedule: the schedule.
            family: the way to divide the devices.
            reason: a sentence that says why.
        """
        self._refused.setdefault((schedule, family), reason)

    def fastest_contiguous(self) -> float:
        """Return the shortest step (s) of plans with one stage per device and whole backwards; inf if there is none."""
        return self._contiguous

    def best_of_each(self, best: Plan | None) -> tuple[RejectedPlan, ...]:
        """Return the best plan of every schedule and family but the chosen one.

        Args:
            best: the chosen plan; None if no plan fits.

        Returns:
            Rejected plans with reasons, the fastest first.
        """
        rows: list[RejectedPlan] = []
        winner = (best.schedule, best.family) if best else None
        for key in {**self._ran, **self._too_big, **self._pruned, **self._refused}:
            if key != winner:
                rows.append(self._row(key, best))
        return tuple(sorted(rows, key=lambda row: (row.step_s is None, row.step_s or 0.0, row.schedule, row.family)))

    def _row(self, key: tuple[str, str], best: Plan | None) -> RejectedPlan:
        schedule, family = key
        if key in self._ran:
            plan = self._ran[key]
            return RejectedPlan(
                schedule=schedule,
                family=family,
                label=plan.label,
                step_s=plan.step_s,
                memory_bytes=plan.memory_bytes,
                reason=_why_slower(plan, best) if best else "",
            )
        if key in self._pruned and best:
            share = self._pruned[key] / best.step_s - 1
            reason = f"not simulated: even its lower bound is {100 * share:.1f} % above the best plan"
            if share < 1e-9:
                reason = "not simulated: neither its lower bound nor its memory is below that of the best plan"
            return RejectedPlan(
                schedule=schedule, family=family, label=schedule, step_s=None, memory_bytes=None, reason=reason
            )
        if key in self._too_big:
            over, plan = self._too_big[key]
            return RejectedPlan(
                schedule=schedule,
                family=family,
                label=plan.label,
                step_s=None,
                memory_bytes=plan.memory_bytes,
                reason=f"needs {over / 1e9:.2f} GB more memory than a device has",
            )
        return RejectedPlan(
            schedule=schedule,
            family=family,
            label=schedule,
            step_s=None,
            memory_bytes=None,
            reason=self._refused.get(key, ""),
        )


def _contiguous(plan: Plan) -> bool:
    """Return True if every device has one stage and does whole backwards: the class of plans of `ChainBound`."""
    schedule = schedule_named(plan.schedule)
    return len(plan.stages) == len(plan.replicas) and schedule.weight_copies == 1 and not schedule.splits_backward


def _why_slower(plan: Plan, best: Plan) -> str:
    """Say which part of the slowest device's time differs most between two plans."""
    longer = plan.step_s / best.step_s - 1
    if longer < 1e-9:
        if plan.memory_bytes > best.memory_bytes * (1 + 1e-9):
            return f"as fast, but needs {plan.memory_bytes / 1e9:.2f} GB against {best.memory_bytes / 1e9:.2f} GB"
        return "as fast with the same memory; the other came first"
    parts = {
        "synchronising gradients": _sync(plan) - _sync(best),
        "the busiest device's computing": _busiest_nodes(plan) - _busiest_nodes(best),
        "waiting (bubble and transfers)": _waiting(plan) - _waiting(best),
    }
    name, seconds = max(parts.items(), key=lambda item: item[1])
    return f"{100 * longer:.1f} % slower: {1e3 * seconds:.3g} ms more {name}"


def _sync(plan: Plan) -> float:
    """Return the longest synchronisation of gradients (s)."""
    return max(stage.sync_s for stage in plan.stages)


def _busiest_nodes(plan: Plan) -> float:
    """Return the computing time (s) of the busiest place."""
    work = [0.0] * len(plan.replicas)
    for stage in plan.stages:
        q = -(-plan.micro_batches // plan.replicas[stage.place])
        work[stage.place] += q * (stage.forward_s + stage.backward_s)
    return max(work)


def _waiting(plan: Plan) -> float:
    """Return the rest of the step (s): bubble and transfers."""
    return plan.step_s - _busiest_nodes(plan) - _sync(plan)
