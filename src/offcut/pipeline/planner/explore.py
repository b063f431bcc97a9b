"""The exploration of one number of devices: the best plans, and how good any plan could be.

For every micro-batch size and every way to divide the devices (stages x equal replicas, uneven replicas, one stage:
data parallelism) the exact partitioners give splits, every schedule that can run them is simulated, and plans that are
dominated in time and memory are dropped. A candidate whose lower bound and least memory are both no better than those
of a plan already found is never simulated. Where the best plan is not yet shown to be near the bound, the bound
is tightened and the plan's neighbourhood searched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from offcut.errors import InputError
from offcut.pipeline.hardware import Link
from offcut.pipeline.layer_profile import LayerProfile
from offcut.pipeline.plan import Plan, Stage
from offcut.pipeline.planner.bound import ChainBound, any_plan_bound
from offcut.pipeline.planner.candidates import CandidatePlan, Replicas, Splits, least_memory, make_candidate, neighbours
from offcut.pipeline.planner.device_chain import DeviceChain
from offcut.pipeline.planner.partition import Cuts
from offcut.pipeline.planner.problem import PlanningProblem
from offcut.pipeline.planner.rejected import RejectedPlan, RejectedPlans
from offcut.pipeline.schedules import Schedule, Sends
from offcut.pipeline.simulator import simulate

#: A gap this small needs no further search.
_CLOSE = 0.005
#: Simulations that the search around the best plan may spend on one size.
_SEARCH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The best plans of one size, and lower bounds to compare them with.

    `plans` are the Pareto set of step time against memory, fastest first. `bound_s`: no plan with one contiguous stage
    per device and whole backwards has a shorter step (s); `gap` is how far the best such plan that was found is above
    it, as a share (inf where only others were tried). `bound_any_s` and `gap_any` are the same for any synchronous
    plan. `smallest_memory_bytes` is the least memory per device with which some plan exists. `rejected` says why the
    other schedules and families lost.
    """

    devices: int
    plans: tuple[Plan, ...]
    bound_s: float
    bound_any_s: float
    gap: float
    gap_any: float
    smallest_memory_bytes: float
    rejected: tuple[RejectedPlan, ...]

    @property
    def best(self) -> Plan | None:
        """The fastest plan; None if no plan fits the memory."""
        return self.plans[0] if self.plans else None

    @property
    def certificate(self) -> str:
        """A sentence that says how far the best plan may be from optimal."""
        if not self.plans:
            return "no plan fits"
        # Round up: a certificate must not promise more than was shown.
        if math.isinf(self.gap):
            return f"within {math.ceil(self.gap_any * 1000 - 1e-6) / 10:.1f} % of any plan at all"
        return f"within {math.ceil(self.gap * 1000 - 1e-6) / 10:.1f} % of the best possible plan of contiguous stages"


class _Search:
    """The state of the exploration of one size: the Pareto set so far, and what was tried."""

    def __init__(self, problem: PlanningProblem, devices: int) -> None:
        self.problem = problem
        self.devices = devices
        self.rejected = RejectedPlans()
        self.front: list[Plan] = []
        self.simulated = 0
        self._seen: set[tuple[int, Cuts, Replicas, str]] = set()

    def candidate(
        self, device_chain: DeviceChain, cuts: Cuts, replicas: Replicas, schedule: Schedule
    ) -> CandidatePlan | None:
        """Make a candidate; None if it was tried before or cannot run."""
        key = (device_chain.micro_batch, cuts, replicas, schedule.name)
        if key in self._seen:
            return None
        self._seen.add(key)
        made = make_candidate(self.problem, device_chain, cuts, replicas, schedule)
        if isinstance(made, str):
            self.rejected.record_refused(schedule.name, _family(replicas), made)
            return None
        return made

    def simulate_promising(self, candidates: Iterable[CandidatePlan | None]) -> None:
        """Simulate the candidates that no plan dominates yet, those of the lowest bounds first."""
        for one in sorted((c for c in candidates if c), key=lambda c: (c.bound_s, c.least_bytes)):
            if any(p.step_s <= one.bound_s and p.memory_bytes <= one.least_bytes for p in self.front):
                self.rejected.record_pruned(one.schedule.name, _family(one.replicas), one.bound_s)
                continue
            plan = evaluate(self.problem, one)
            self.simulated += 1
            memory = [d.memory_bytes for d in self.problem.hardware.devices[: plan.devices]]
            over = max(p - m for p, m in zip(plan.peak_bytes, memory, strict=True))
            if over > 0:
                self.rejected.record_too_big(plan, over)
                continue
            self.rejected.record_simulated(plan)
            if not any(p.step_s <= plan.step_s and p.memory_bytes <= plan.memory_bytes for p in self.front):
                kept = [p for p in self.front if p.step_s < plan.step_s or p.memory_bytes < plan.memory_bytes]
                self.front = sorted([*kept, plan], key=lambda p: p.step_s)


class Explorer:
    """Explores one problem, any number of sizes; splits, bounds and costs are shared between them."""

    def __init__(self, problem: PlanningProblem) -> None:
        self.problem = problem
        self._device_chains = [
            DeviceChain(problem.profile, problem.hardware, size, problem.kinds)
            for size in problem.micro_batches
            if problem.batch % size == 0
        ]
        self._splits = Splits(problem)
        self._bounds: dict[tuple[int, float, Link], ChainBound] = {}
        self._least_memory = lru_cache(maxsize=None)(least_memory)

    def explore(self, devices: int) -> Findings:
        """Find the best plans of one size.

        Args:
            devices: the number of devices that a plan may use, from the first of the hardware's.

        Returns:
            The Pareto set of plans, the bounds, and the reasons against the others.

        Raises:
            InputError: the cluster has fewer devices.
        """
        if not 1 <= devices <= len(self.problem.hardware.devices):
            raise InputError(
                f"{devices} devices were asked for, but the hardware describes {len(self.problem.hardware.devices)}.",
                next_step="Raise a count in the hardware file, or ask for fewer.",
            )
        search = _Search(self.problem, devices)
        search.simulate_promising(
            search.candidate(device_chain, *split)
            for device_chain in self._device_chains
            for split in self._splits.even(device_chain, devices)
        )
        bound, bound_any = self._least(devices)
        uniform = self.problem.hardware.overlap and self.problem.hardware.uniform(devices)
        if (
            uniform
            and devices > 2
            and self.problem.stages is None
            and search.rejected.fastest_contiguous() > bound * (1 + _CLOSE)
        ):
            bound = self._refine(search, bound)
        contiguous = search.rejected.fastest_contiguous()
        front = search.front
        return Findings(
            devices=devices,
            plans=tuple(front),
            bound_s=bound,
            bound_any_s=bound_any,
            gap=max(0.0, contiguous / bound - 1) if math.isfinite(contiguous) and bound > 0 else math.inf,
            gap_any=max(0.0, front[0].step_s / bound_any - 1) if front else math.inf,
            smallest_memory_bytes=self.smallest_memory_bytes(devices),
            rejected=search.rejected.best_of_each(front[0] if front else None),
        )

    def smallest_memory_bytes(self, devices: int) -> float:
        """Return the least memory per device with which a plan exists.

        Args:
            devices: the most devices that a plan may use.

        Returns:
            Bytes.
        """
        return min(
            self._least_memory(device_chain, min(devices, device_chain.chain.layers))
            for device_chain in self._device_chains
        )

    def _refine(self, search: _Search, bound: float) -> float:
        """Try uneven replicas, tighten the bound and search near the best plan; returns the bound (s)."""
        devices = search.devices
        linear = [schedule for schedule in self.problem.tried_schedules if schedule.depths and schedule.synchronous]
        if not linear:
            return bound
        tight = math.inf
        for device_chain in self._device_chains:
            chain_bound = self._chain_bound(device_chain, devices)
            ceiling = search.rejected.fastest_contiguous()
            if not math.isfinite(ceiling):
                ceiling = 4 * bound
            loose = min(chain_bound.least_s(devices), ceiling)
            least, splits = chain_bound.tighten(devices, loose, ceiling)
            splits += chain_bound.loose_splits(devices, loose)
            tight = min(tight, least)
            search.simulate_promising(
                search.candidate(device_chain, *split, schedule) for split in splits for schedule in linear
            )
        start = search.simulated
        while search.simulated - start < _SEARCH and search.front:
            best = search.front[0]
            if best.step_s <= tight * (1 + _CLOSE) or len(best.stages) != len(best.replicas):
                break
            device_chain = next(p for p in self._device_chains if p.micro_batch == best.micro_batch)
            near: list[CandidatePlan | None] = []
            for split in neighbours(best.cuts, best.replicas, devices, device_chain.work):
                # The bound is the same for every schedule of this family: look at one before the others are made.
                first = search.candidate(device_chain, *split, linear[0])
                if first is not None and first.bound_s < best.step_s:
                    near += [first, *(search.candidate(device_chain, *split, schedule) for schedule in linear[1:])]
            search.simulate_promising(near)
            if search.front[0].step_s >= best.step_s * (1 - 1e-9):
                break
        return max(bound, tight)

    def _chain_bound(self, device_chain: DeviceChain, devices: int) -> ChainBound:
        """Return the bound of a chain on the fastest device and link, cached by both."""
        hardware = self.problem.hardware
        fastest = device_chain.fastest(devices)
        links = [hardware.link, *hardware.hops.values()]
        link = Link(
            bandwidth_bytes_s=max(x.bandwidth_bytes_s for x in links), latency_s=min(x.latency_s for x in links)
        )
        memory = max(d.memory_bytes for d in hardware.devices[:devices])
        key = (id(fastest), memory, link)
        if key not in self._bounds:
            self._bounds[key] = ChainBound(
                fastest,
                micro_batches=self.problem.batch // device_chain.micro_batch,
                link=link,
                memory_bytes=memory,
                state_factor=hardware.state_factor,
                max_devices=len(hardware.devices),
            )
        return self._bounds[key]

    def _least(self, devices: int) -> tuple[float, float]:
        """Return the bounds (s) of contiguous plans and of any synchronous plan."""
        contiguous = anything = math.inf
        for device_chain in self._device_chains:
            contiguous = min(contiguous, self._chain_bound(device_chain, devices).least_s(devices))
            speeds = device_chain.speeds(devices)
            m = self.problem.batch // device_chain.micro_batch
            anything = min(anything, any_plan_bound(device_chain.chain, m, sum(speeds), max(speeds)))
        return max(contiguous, anything), anything


def evaluate(problem: PlanningProblem, one: CandidatePlan) -> Plan:
    """Simulate one candidate.

    Args:
        problem: the planning problem.
        one: the candidate.

    Returns:
        Its plan, with step time, bubbles and memory.
    """
    costs, schedule, places = one.costs, one.schedule, len(one.replicas)
    sends: Sends = schedule.sends if problem.hardware.overlap else "blocking"
    timeline = simulate(schedule.program(one.shape), costs, sends=sends, occupancy=True)
    versions = np.array(
        [schedule.weight_versions(places, schedule.place_of(s, places)) - 1 for s in range(costs.stages)]
    )
    fixed = costs.state_bytes + versions * costs.parameter_bytes
    return Plan(
        model=problem.profile.model,
        devices=sum(one.replicas),
        batch=problem.batch,
        micro_batch=one.device_chain.micro_batch,
        schedule=schedule.name,
        replicas=one.replicas,
        stages=_stages(problem.profile, one),
        overlap=problem.hardware.overlap,
        caps=one.shape.caps,
        step_s=timeline.step_s,
        bound_s=one.bound_s,
        bubble_of_step=timeline.bubble_of_step,
        bubble_of_span=timeline.bubble_of_span,
        peak_bytes=tuple((timeline.held @ fixed + timeline.peak_bytes).tolist()),
        peak_in_flight=tuple(timeline.peak_in_flight.tolist()),
    )


def _family(replicas: Replicas) -> str:
    """Return the name of a way to divide the devices."""
    if len(replicas) == 1:
        return "data parallel"
    if max(replicas) == 1:
        return "pipeline"
    return "pipeline x replicas" if len(set(replicas)) == 1 else "uneven replicas"


def _stages(profile: LayerProfile, one: CandidatePlan) -> tuple[Stage, ...]:
    """Return the stages of a candidate's plan."""
    costs, places = one.costs, len(one.replicas)
    return tuple(
        Stage(
            first_layer=one.cuts[s],
            end_layer=one.cuts[s + 1],
            place=one.schedule.place_of(s, places),
            forward_s=float(costs.forward_s[s]),
            backward_s=float(costs.backward_s[s]),
            weight_grad_s=float(costs.weight_grad_s[s]),
            hop_s=float(costs.hop_s[s]) if s < costs.stages - 1 else 0.0,
            sync_s=float(costs.sync_s[s]),
            parameter_bytes=float(costs.parameter_bytes[s]),
            state_bytes=float(costs.state_bytes[s]),
            stored_bytes=float(costs.stored_bytes[s]),
            skips=profile.layers[one.cuts[s + 1] - 1].skips if s < costs.stages - 1 else (),
        )
        for s in range(costs.stages)
    )
