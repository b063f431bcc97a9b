"""Poses the allocation problem, and turns its answer into claimed nodes and started workers."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from math import inf
from operator import attrgetter

from offcut.allocate.placement import Placement, place
from offcut.control import admission, curve_learning, job_curves, membership, node_health, probes
from offcut.control.event_context import EventContext
from offcut.control.state import LIVE, Decision, JobState, State
from offcut.model import AllocationProblem, Job, JobRequest, ScalingCurve
from offcut.model import events as ev
from offcut.model.effects import Claim, Solve, StartWorkers
from offcut.model.events import Member, Timer

#: The order in which a job keeps its nodes: first those in the generation, then those that are nearest to it.
_KEEP = {"member": 0, "leaving": 1, "ready": 2, "starting": 3, "stopped": 4, "none": 5}

#: How often the wait before the solver is asked again is doubled, at most.
_MOST_DOUBLINGS = 7

#: A resize counts as costing at most this much of the horizon.
_MOST_OF_HORIZON = 0.9


def problem(state: State) -> AllocationProblem:
    """Return the allocation problem: how many of the free and held nodes each admitted job should have.

    Throughput is in each job's own unit, its rate at its smallest size, so that jobs weigh the same whatever a sample
    costs.
    """
    settings = state.settings
    # A start that costs as much as the horizon would gain nothing, and the job would wait for ever.
    most_s = _MOST_OF_HORIZON * settings.horizon_s
    if job_curves.learns(state):
        requests = tuple([_learned_request(state, job, most_s) for job in admission.admitted(state)])
    else:
        requests = tuple(
            [
                _request(job.job, len(job.nodes), *job.resize_costs_s(settings), most_s)
                for job in admission.admitted(state)
            ]
        )
    held = sum([request.current for request in requests])
    return AllocationProblem(
        nodes=held + len(state.free),
        horizon_s=settings.horizon_s,
        jobs=requests,
        cost_model=settings.cost_model,
        objective="priority" if len({request.priority for request in requests}) > 1 else "weighted",
    )


def node_demand(state: State) -> int:
    """Return how many nodes the jobs that run or wait could use in all: the sum of their largest sizes."""
    if not state.may_claim:
        return 0
    jobs = [state.jobs[job_id] for job_id in (*state.started, *state.queue)]
    return sum(job.job.sizes.largest for job in jobs if job.phase in LIVE)


def _learned_request(state: State, job: JobState, most_s: float) -> JobRequest:
    learned = job_curves.learned_curve(state, job)
    request = _request(job.job, len(job.nodes), *job_curves.costs_s(state, job), most_s, learned)
    if job.probe is None:
        return request
    n = job.probe.size
    return replace(request, min_nodes=n, max_nodes=n, sizes=(n,), may_wait=False)


@lru_cache(maxsize=4096)
def _request(
    job: Job,
    current: int,
    grow_cost_s: float,
    shrink_cost_s: float,
    most_s: float,
    learned: ScalingCurve | None = None,
) -> JobRequest:
    """Return the job's part of the problem. Cached: most jobs are as they were in the problem before."""
    sizes, curve = job.sizes, job_curves.curve_that_counts(job, learned)
    unit = job_curves.unit_rate(curve, sizes) or 1.0
    return JobRequest(
        id=job.id,
        min_nodes=sizes.smallest,
        max_nodes=sizes.largest,
        sizes=None if sizes.contiguous else tuple(sizes.allowed),
        current=current,
        weight=job.weight / unit,
        curve=curve,
        grow_cost_s=min(grow_cost_s, most_s),
        shrink_cost_s=min(shrink_cost_s, most_s),
        priority=job.priority,
    )


def ask(context: EventContext) -> None:
    """Pose the problem again. It has changed, so an answer to the one before is stale."""
    state = context.state
    state.version += 1
    if not state.may_claim:
        state.open_problem = None
        return
    if job_curves.learns(state):
        curve_learning.refresh(context)
    asked = problem(state)
    state.open_problem = asked if asked.jobs else None
    if state.open_problem is not None:
        context.emit(Solve, version=state.version, problem=asked)


def on_solved(context: EventContext, event: ev.Solved) -> None:
    state = context.state
    if state.open_problem is None:
        return
    overtaken = event.version != state.version
    if overtaken and not event.late:
        return
    asked, allocation = state.open_problem, event.allocation
    jobs = {job.id: state.jobs[job.id] for job in asked.jobs}
    counts = {job_id: n for job_id, n in allocation.nodes.items() if job_id in jobs}
    fault = _fault(asked, jobs, counts)
    if overtaken:
        if fault:
            return  # the answer to the newer problem is on its way
        counts = {job_id: counts.get(job_id, len(job.nodes)) for job_id, job in jobs.items()}
        allocation = replace(allocation, nodes=counts, bound=inf, proven=False)
    else:
        state.open_problem = None
        if fault:
            context.log("allocation", f"answer refused: {fault}; every job keeps the nodes that it has")
            return
    _note_standin(context, allocation.standin)
    probes.note_granted(jobs.values(), counts)
    state.decision = Decision(context.now_s, event.version, asked, allocation)
    changed = [job_id for job_id in jobs if job_id in counts and counts[job_id] != len(jobs[job_id].nodes)]
    if not changed:
        return
    nodes = state.nodes
    placed = _place(state, {job_id: counts[job_id] for job_id in changed})
    for job_id, names in placed.dropped.items():
        for name in names:
            membership.stop_and_detach(context, jobs[job_id], nodes[name])
    claims: list[str] = []
    for job_id, names in placed.gained.items():
        claims += _gain(context, jobs[job_id], names)
    if claims:
        ends_s = [until_s for name in claims if (until_s := nodes[name].until_s) is not None]
        context.emit(Claim, nodes=tuple(claims), until_s=min(ends_s, default=None))
    # Carrying out the answer does not change the problem.
    context.problem_changed = overtaken


def _note_standin(context: EventContext, reason: str) -> None:
    """Log that a greedy answer was taken, and ask the solver again, later each time."""
    state = context.state
    if not reason:
        state.standin_answers = 0
        return
    wait_s = state.settings.solve_again_s * 2 ** min(state.standin_answers, _MOST_DOUBLINGS)
    state.standin_answers += 1
    context.set_timer(Timer("solve_again"), wait_s)
    context.log("allocation", f"{reason} A greedy answer was taken; the solver is asked again after {wait_s:g} s.")


def _place(state: State, counts: dict[str, int]) -> Placement:
    """Return which nodes the jobs gain and drop.

    Nodes that are up come first, then those that are idle longest: of nodes whose end is not known, these last longest.
    Nodes on which starts have failed lately are given only where there are no others.
    """
    nodes, settings = state.nodes, state.settings
    held: dict[str, list[str]] = {}
    need = 0
    for job_id, n in counts.items():
        held_by_job = list(state.jobs[job_id].nodes)
        if n < len(held_by_job):
            held_by_job.sort(key=lambda name: _KEEP[nodes[name].worker])
        held[job_id] = held_by_job
        need += max(0, n - len(held_by_job))
    if not need:
        return place(counts, held, ())
    free = [nodes[name] for name in state.free]
    if state.failed_starts:
        well = [node for node in free if not node_health.has_failed_lately(state, node.name)]
        free = well if len(well) >= need else free
    if settings.placement == "random":
        free.sort(key=lambda node: blake2b(f"{node.name} {state.version}".encode(), digest_size=8).digest())
        return place(counts, held, [node.name for node in free])
    free.sort(key=attrgetter("idle_since_s"))
    free.sort(key=lambda node: node.phase != "up")
    until_s = {node.name: node.until_s for node in free if node.until_s is not None}
    if not until_s:
        del free[need:]
    cohort = {node.name: node.idle_since_s for node in free}
    for names in held.values():
        for name in names:
            cohort[name] = nodes[name].idle_since_s
    return place(counts, held, [node.name for node in free], until_s=until_s, cohort=cohort)


def _fault(asked: AllocationProblem, jobs: dict[str, JobState], counts: dict[str, int]) -> str:
    """Return why an answer cannot be carried out; empty if it can. A solver's mistake must not end the controller."""
    total = 0
    for job_id, job in jobs.items():
        now = len(job.nodes)
        n = counts.get(job_id, now)
        if n and n != now and n not in job.job.sizes:
            return f"{n} is not an allowed size of {job_id}"
        total += n
    return f"{total} nodes given out, but there are {asked.nodes}" if total > asked.nodes else ""


def _gain(context: EventContext, job: JobState, names: tuple[str, ...]) -> list[str]:
    """Assign the nodes to the job. Return those that have to be claimed first."""
    starting: list[Member] = []
    claims: list[str] = []
    for name in names:
        node = context.state.nodes[name]
        membership.assign(context, job, node)
        if node.phase == "up":
            membership.next_incarnation(context, node)
            starting.append(node.member)
        elif node.phase == "idle":
            node.phase = "claimed"
            claims.append(name)
            context.set_timer(Timer("boot", name), context.state.settings.boot_limit_s)
    if starting:
        context.emit(StartWorkers, job=job.job.id, members=tuple(starting))
    return claims


def on_solve_failed(context: EventContext, event: ev.SolveFailed) -> None:
    if event.version == context.state.version:
        context.state.open_problem = None
        context.log("allocation", f"not solved: {event.reason}; every job keeps the nodes that it has")
        context.set_timer(Timer("solve_again"), context.state.settings.solve_again_s)
