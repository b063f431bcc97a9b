"""The exploration: for one number of devices, which plans are worth having, and how good could any plan be?

For every micro-batch size and every way to share the devices out (stages x equal replicas, uneven replicas, one stage:
data parallelism) the exact partitioners give splits, every schedule that can run them is simulated, and what is
dominated in time and memory is dropped. A candidate whose lower bound and least memory are both no better than a plan
that is already there is never simulated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from offcut.errors import InputError
from offcut.pipeline.bound import ChainBound, any_plan_bound, plan_bound
from offcut.pipeline.costs import StageCosts
from offcut.pipeline.hardware import Hardware, Link
from offcut.pipeline.partition import Cuts, balance, least_bound
from offcut.pipeline.placing import Placing
from offcut.pipeline.plan import Plan, Stage
from offcut.pipeline.profile import Profile
from offcut.pipeline.runners_up import Lost, Tally
from offcut.pipeline.schedules import SCHEDULES, Schedule, Sends, Shape, schedule_named
from offcut.pipeline.schedules.linear import safe_depths
from offcut.pipeline.simulator import simulate

#: Explored unless the caller names others: synchronous, and runnable on PyTorch as they are.
DEFAULT_SCHEDULES = ("gpipe", "1f1b", "1f1b-so", "1f1b-link", "interleaved", "zb-h1")
#: The same where a device that sends or receives does not compute.
DEFAULT_BLOCKING_SCHEDULES = ("gpipe", "1f1b-sno")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is to be planned: a step of `batch` samples on up to `len(hardware.devices)` devices.

    `micro_batches` are the micro-batch sizes to try; those that do not divide `batch` are left out. `kinds` are the
    profiles of device kinds that have their own. `schedules` empty: the default ones.
    """

    profile: Profile
    hardware: Hardware
    batch: int
    micro_batches: tuple[int, ...]
    schedules: tuple[str, ...] = ()
    kinds: dict[str, Profile] = field(default_factory=dict)

    @property
    def tried_schedules(self) -> tuple[Schedule, ...]:
        if self.schedules:
            return tuple(schedule_named(name) for name in self.schedules)
        if not self.hardware.overlap:
            return tuple(SCHEDULES[name] for name in DEFAULT_BLOCKING_SCHEDULES)
        names = [n for n in DEFAULT_SCHEDULES if self.profile.weight_grad_measured or n != "zb-h1"]
        return tuple(SCHEDULES[name] for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one size offers: the Pareto set of time against memory, fastest first, and what it is measured against.

    `bound_s`: no plan with one contiguous stage per device and whole backwards is faster; `gap` is how far the best
    such plan is above it. `bound_any_s` and `gap_any` are the same for any synchronous plan whatever.
    `smallest_memory_bytes` is the least memory per device with which some plan exists.
    """

    devices: int
    plans: tuple[Plan, ...]
    bound_s: float
    bound_any_s: float
    gap: float
    gap_any: float
    smallest_memory_bytes: float
    lost: tuple[Lost, ...]

    @property
    def best(self) -> Plan | None:
        return self.plans[0] if self.plans else None

    @property
    def certificate(self) -> str:
        """How good the best plan is, in words."""
        if not self.plans:
            return "no plan fits"
        # Round up: a certificate must not promise more than was shown.
        within = math.ceil(self.gap * 1000) / 10
        return f"within {within:.1f} % of the best possible plan of contiguous stages"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    placing: Placing
    cuts: Cuts
    replicas: tuple[int, ...]
    schedule: Schedule
    costs: StageCosts
    shape: Shape
    bound_s: float
    least_bytes: float


class Explorer:
    """Explores one problem, any number of sizes; bounds and costs are shared between them."""

    def __init__(self, problem: Problem) -> None:
        _check(problem)
        self.problem = problem
        self._placings = [
            Placing(problem.profile, problem.hardware, size, problem.kinds)
            for size in problem.micro_batches
            if problem.batch % size == 0
        ]
        self._bounds: dict[tuple[int, float, Link], ChainBound] = {}

    def at(self, devices: int) -> Findings:
        """Explore one size. Raises InputError where the cluster has fewer devices."""
        if not 1 <= devices <= len(self.problem.hardware.devices):
            raise InputError(
                f"{devices} devices asked for, but the hardware describes {len(self.problem.hardware.devices)}.",
                next_step="Raise a count in the hardware file, or ask for fewer.",
            )
        tally = Tally()
        front: list[Plan] = []
        candidates = sorted(self._candidates(devices, tally), key=lambda c: c.bound_s)
        for candidate in candidates:
            label = _family(candidate.replicas)
            ahead = [p for p in front if p.step_s <= candidate.bound_s and p.memory_bytes <= candidate.least_bytes]
            if ahead:
                tally.pruned(candidate.schedule.name, label, candidate.bound_s)
                continue
            plan = self._evaluate(candidate)
            memory = [d.memory_bytes for d in self.problem.hardware.devices[: plan.devices]]
            over = max(p - m for p, m in zip(plan.peak_bytes, memory, strict=True))
            if over > 0:
                tally.too_big(plan, over)
                continue
            tally.ran(plan)
            if not any(p.step_s <= plan.step_s and p.memory_bytes <= plan.memory_bytes for p in front):
                front = [p for p in front if p.step_s < plan.step_s or p.memory_bytes < plan.memory_bytes]
                front.append(plan)
        front.sort(key=lambda plan: plan.step_s)
        bound, bound_any = self._least(devices)
        contiguous = tally.fastest_contiguous()
        return Findings(
            devices=devices,
            plans=tuple(front),
            bound_s=bound,
            bound_any_s=bound_any,
            gap=contiguous / bound - 1 if bound and math.isfinite(contiguous) else math.inf,
            gap_any=front[0].step_s / bound_any - 1 if front else math.inf,
            smallest_memory_bytes=self.smallest_memory_bytes(devices),
            lost=tally.lost(front[0] if front else None),
        )

    def smallest_memory_bytes(self, devices: int) -> float:
        """Least memory per device with which some plan of up to `devices` stages exists, one micro-batch in flight."""
        least = math.inf
        for placing in self._placings:
            chain = placing.chain
            for stages in range(1, min(devices, chain.layers) + 1):
                least = min(least, _least_memory(placing, stages))
        return least

    def _candidates(self, devices: int, tally: Tally) -> Iterator[_Candidate]:
        seen: set[tuple[int, Cuts, tuple[int, ...], str]] = set()
        for placing in self._placings:
            m = self.problem.batch // placing.micro_batch
            for cuts, replicas, schedule in self._splits(placing, devices, m):
                key = (placing.micro_batch, cuts, replicas, schedule.name)
                if key in seen:
                    continue
                seen.add(key)
                candidate = self._candidate(placing, cuts, replicas, schedule, m)
                if isinstance(candidate, str):
                    tally.refused(schedule.name, _family(replicas), candidate)
                else:
                    yield candidate

    def _splits(self, placing: Placing, devices: int, m: int) -> Iterator[tuple[Cuts, tuple[int, ...], Schedule]]:
        """Every (cuts, replicas, schedule) worth a look."""
        layers = placing.chain.layers
        tried = self.problem.tried_schedules
        for replicas in range(1, min(devices, m) + 1):
            stages = devices // replicas
            if stages * replicas != devices or stages > layers:
                continue
            if stages == 1:
                yield (0, layers), (replicas,), SCHEDULES["1f1b"]
                continue
            counts = (replicas,) * stages
            share = -(-m // replicas)
            for schedule in tried:
                places = stages * schedule.chunks
                if places > layers:
                    continue
                flights = [schedule.in_flight(places - s, places, share) for s in range(places)]
                yield from ((cuts, counts, schedule) for cuts in _cuts(placing, replicas, stages, schedule, flights, m))
        if self.problem.hardware.overlap and self.problem.hardware.uniform(devices) and devices > 2:
            bound = self._chain_bound(placing, devices)
            least = bound.least_s(devices)
            for slack in (1.0005, 1.02, 1.06) if math.isfinite(least) else ():
                split = bound.split(devices, least * slack)
                if split and len(set(split[1])) > 1:
                    yield from ((*split, schedule) for schedule in tried if schedule.depths)

    def _candidate(
        self, placing: Placing, cuts: Cuts, replicas: tuple[int, ...], schedule: Schedule, m: int
    ) -> _Candidate | str:
        costs = placing.costs(cuts, replicas, schedule)
        shape = Shape(
            ranks=len(replicas),
            micro_batches=m,
            replicas=replicas,
            chunks=(len(cuts) - 1) // len(replicas),
            stage_s=tuple(costs.stage_s),
            hop_s=tuple(costs.hop_s),
        )
        if refusal := schedule.refuses(shape):
            return refusal
        least = costs.state_bytes + costs.stored_bytes
        if schedule.depths and shape.chunks == 1:
            limits = [
                placing.memory_bytes(sum(replicas[:s]), replicas[s]) - costs.state_bytes[s] for s in range(len(replicas))
            ]
            caps = tuple(
                int(min(m, room / max(stored, 1e-9))) for room, stored in zip(limits, costs.stored_bytes, strict=True)
            )
            depths = safe_depths(shape, schedule.depths(shape))
            if schedule.name == "1f1b-link" and any(cap < d for cap, d in zip(caps, depths, strict=True)):
                if min(caps) < 1:
                    return "not one micro-batch fits the memory"
                shape = Shape(
                    ranks=shape.ranks,
                    micro_batches=m,
                    replicas=replicas,
                    stage_s=shape.stage_s,
                    hop_s=shape.hop_s,
                    caps=caps,
                )
                depths = safe_depths(shape, schedule.depths(shape))
            held = np.minimum(depths, [-(-m // r) for r in replicas])
            least = costs.state_bytes + held * costs.stored_bytes
        bound = self._bound_of(costs, m, replicas, schedule, shape)
        return _Candidate(
            placing=placing,
            cuts=cuts,
            replicas=replicas,
            schedule=schedule,
            costs=costs,
            shape=shape,
            bound_s=bound,
            least_bytes=float(least.max()),
        )

    def _bound_of(
        self, costs: StageCosts, m: int, replicas: tuple[int, ...], schedule: Schedule, shape: Shape
    ) -> float:
        if shape.chunks == 1 and schedule.weight_copies == 1 and schedule.synchronous:
            return plan_bound(costs, m, replicas, splits_backward=schedule.splits_backward)
        work = np.zeros(len(replicas))
        np.add.at(work, np.arange(costs.stages) % len(replicas), costs.stage_s)
        busiest = float((work * [-(-m // r) for r in replicas]).max()) / schedule.weight_copies
        return busiest if schedule.weight_copies == 1 else float(costs.stage_s.sum() * m / sum(replicas))

    def _evaluate(self, candidate: _Candidate) -> Plan:
        problem, costs, schedule = self.problem, candidate.costs, candidate.schedule
        sends: Sends = schedule.sends if problem.hardware.overlap else "blocking"
        timeline = simulate(schedule.program(candidate.shape), costs, sends=sends, occupancy=True)
        places = len(candidate.replicas)
        versions = np.array([schedule.weight_versions(places, s % places) - 1 for s in range(costs.stages)])
        fixed = costs.state_bytes + versions * costs.parameter_bytes
        return Plan(
            model=problem.profile.model,
            devices=sum(candidate.replicas),
            batch=problem.batch,
            micro_batch=candidate.placing.micro_batch,
            schedule=schedule.name,
            replicas=candidate.replicas,
            stages=_stages(problem.profile, candidate),
            caps=candidate.shape.caps,
            step_s=timeline.step_s,
            bound_s=candidate.bound_s,
            bubble_of_step=timeline.bubble_of_step,
            bubble_of_span=timeline.bubble_of_span,
            peak_bytes=tuple(float(x) for x in timeline.held @ fixed + timeline.peak_bytes),
            peak_in_flight=tuple(int(x) for x in timeline.peak_in_flight),
        )

    def _chain_bound(self, placing: Placing, devices: int) -> ChainBound:
        hardware = self.problem.hardware
        fastest = placing.fastest(devices)
        links = [hardware.link, *(hardware.hop(k) for k in range(devices - 1))]
        link = Link(
            bandwidth_bytes_s=max(x.bandwidth_bytes_s for x in links), latency_s=min(x.latency_s for x in links)
        )
        memory = max(d.memory_bytes for d in hardware.devices[:devices])
        key = (id(fastest), memory, link)
        if key not in self._bounds:
            self._bounds[key] = ChainBound(
                fastest,
                micro_batches=self.problem.batch // placing.micro_batch,
                link=link,
                memory_bytes=memory,
                state_factor=hardware.state_factor,
                max_devices=len(hardware.devices),
            )
        return self._bounds[key]

    def _least(self, devices: int) -> tuple[float, float]:
        contiguous = anything = math.inf
        for placing in self._placings:
            contiguous = min(contiguous, self._chain_bound(placing, devices).least_s(devices))
            speeds = placing.speeds(devices)
            m = self.problem.batch // placing.micro_batch
            anything = min(anything, any_plan_bound(placing.chain, m, sum(speeds), max(speeds)))
        return max(contiguous, anything), anything


def _cuts(
    placing: Placing, replicas: int, stages: int, schedule: Schedule, flights: list[int], m: int
) -> Iterator[Cuts]:
    """Splits for one way to share the devices: balanced, of least bound, and with the least in flight."""
    share = -(-m // replicas)
    if schedule.chunks > 1:
        row = placing.row(stages, replicas, flights[:stages], schedule.weight_copies)
        wide = type(row)(
            chains=[row.chains[s % stages] for s in range(stages * schedule.chunks)],
            links=([*row.links, placing.hardware.link] * schedule.chunks)[:-1],
            memory_bytes=[row.memory_bytes[s % stages] / schedule.chunks for s in range(stages * schedule.chunks)],
            in_flight=flights,
            state_factor=row.state_factor,
            overlap=row.overlap,
        )
        found = balance(wide)
        if found:
            yield found.cuts
        return
    row = placing.row(stages, replicas, flights, schedule.weight_copies)
    for split in (balance(row), least_bound(row, share, tolerance=1e-6)):
        if split:
            yield split.cuts
        elif schedule.name == "1f1b-link":
            one = least_bound(placing.row(stages, replicas, [1] * stages), share, tolerance=1e-6)
            if one:
                yield one.cuts


def _least_memory(placing: Placing, stages: int) -> float:
    """min over splits of the fullest stage's state and one micro-batch, by bisection over a limit that all share."""
    chain, factor = placing.chain, placing.hardware.state_factor
    need = factor * chain.parameter_bytes + chain.stored_bytes
    ends = np.append(0.0, np.cumsum(need))

    def count(limit: float) -> int:
        used, i = 0, 0
        while i < chain.layers:
            j = int(np.searchsorted(ends, ends[i] + limit - chain.cut_bytes[i], side="right")) - 1
            if j <= i:
                return chain.layers + 1
            used, i = used + 1, j
        return used

    low, high = 0.0, float(ends[-1])
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        if count(middle) <= stages:
            high = middle
        else:
            low = middle
    return high


def _family(replicas: tuple[int, ...]) -> str:
    if len(replicas) == 1:
        return "data parallel"
    if max(replicas) == 1:
        return "pipeline"
    return "pipeline x replicas" if len(set(replicas)) == 1 else "uneven replicas"


def _stages(profile: Profile, candidate: _Candidate) -> tuple[Stage, ...]:
    costs, places = candidate.costs, len(candidate.replicas)
    return tuple(
        Stage(
            first_layer=candidate.cuts[s],
            end_layer=candidate.cuts[s + 1],
            place=s % places,
            forward_s=float(costs.forward_s[s]),
            backward_s=float(costs.backward_s[s]),
            hop_s=float(costs.hop_s[s]) if s < costs.stages - 1 else 0.0,
            sync_s=float(costs.sync_s[s]),
            state_bytes=float(costs.state_bytes[s]),
            stored_bytes=float(costs.stored_bytes[s]),
            skips=profile.layers[candidate.cuts[s + 1] - 1].skips if s < costs.stages - 1 else (),
        )
        for s in range(costs.stages)
    )


def _check(problem: Problem) -> None:
    if problem.batch < 1:
        raise InputError(f"batch {problem.batch} is below 1.", next_step="Give the samples of one step.")
    if not any(problem.batch % size == 0 for size in problem.micro_batches if size > 0):
        sizes = ", ".join(map(str, problem.micro_batches))
        raise InputError(
            f"no micro-batch size ({sizes}) divides the batch of {problem.batch}.",
            next_step="Choose a batch that is a multiple of one of them.",
        )
    _ = problem.tried_schedules
