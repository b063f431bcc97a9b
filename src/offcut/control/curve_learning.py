"""What is learnt of jobs' scaling and resizes, and which of them try a size for a moment.

A job that tries a size (`JobState.probe`) has exactly that size in the allocation problem until its throughput there
has been measured; the rest of the nodes are allocated as always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp

from offcut.advisor import Circumstances, load
from offcut.advisor.posterior import Posterior
from offcut.control import admission
from offcut.control.event_context import EventContext
from offcut.control.state import LIVE, JobState, Probe, State
from offcut.errors import InputError
from offcut.model import ScalingCurve, amdahl
from offcut.model import events as ev
from offcut.model.events import Member, Timer

#: A given curve that is off by this factor between two measured sizes is wrong.
_CONTRADICTS = 1.25
#: Curves that differ by less need no new allocation; the next one will use them.
_WORTH_A_LOOK = 0.02


def learns(state: State) -> bool:
    """Whether curves other than the jobs' own are used."""
    return state.settings.profiler != "oracle"


def measures(state: State) -> bool:
    """Whether throughput has to be measured for that."""
    return load(state.settings.profiler).learns


def costs_s(state: State, job: JobState) -> tuple[float, float]:
    """Seconds of progress that growing and shrinking cost the job: as it says, as was measured, or the settings'.

    A job without a node also waits for its first worker to start.
    """
    histories, its = state.histories, job.job
    grow_s, shrink_s = job.resize_costs_s(state.settings)
    if job.restarts:
        return grow_s, shrink_s  # its script says nothing from which they could be measured
    if its.grow_cost_s is None:
        grow_s = histories.cost_s(its.id, "grow", grow_s)
        if not job.nodes:
            grow_s += histories.cost_s(its.id, "start", 0.0)
    if its.shrink_cost_s is None:
        shrink_s = histories.cost_s(its.id, "shrink", shrink_s)
    return grow_s, shrink_s


def refresh(context: EventContext) -> None:
    """Before a problem is asked: every job's curve rests on all that is known, and every probe can be had."""
    state = context.state
    admitted = admission.admitted(state)
    # What a finishing job still holds is not in the problem.
    left = len(state.free) + sum(len(job.nodes) for job in admitted)
    for job in admitted:
        _refresh_curve(context, job)
        probe = job.probe
        if probe is None:
            continue
        have = len(job.nodes)
        if probe.granted and have < probe.size:
            probe.size = job.job.sizes.largest_within(have)
        left -= probe.size
        if not probe.size or left < 0:
            end_probe(context, job)


def _refresh_curve(context: EventContext, job: JobState) -> None:
    state, job_id = context.state, job.job.id
    history = state.histories.find_or_add(job_id)
    basis = state.histories.basis(job_id, history)
    if basis == history.basis:
        return
    history.basis = basis
    try:
        history.posterior = load(state.settings.profiler).posterior(
            state.histories.evidence(job_id, job.job.sizes, job.job.curve)
        )
    except InputError as error:
        history.posterior = None
        context.log(job_id, f"its curve could not be learnt: {error}")


def note_granted(jobs: Iterable[JobState], counts: Mapping[str, int]) -> None:
    """An answer is being carried out: the jobs that try a size have it now."""
    for job in jobs:
        if job.probe is not None and counts.get(job.job.id) == job.probe.size:
            job.probe.granted = True


def on_job_measured(context: EventContext, event: ev.JobMeasured) -> None:
    state = context.state
    job = state.jobs.get(event.job)
    if job is None or job.phase not in LIVE or not measures(state) or not _usable(context, event):
        return
    histories = state.histories
    if event.slow_node:
        context.log(
            event.job, f"{event.rate:.4g} samples/s on {event.size} nodes, held up by {event.slow_node}: left aside"
        )
        return
    if event.changed:
        factor = histories.shift(event.job, size=event.size, rate=event.rate)
        context.log(event.job, f"its speed has changed by {factor - 1:+.0%} at {event.size} nodes: measured anew")
    relative = histories.observe(
        event.job,
        generation=event.generation,
        size=event.size,
        rate=event.rate,
        spread=event.spread,
        stretches=event.stretches,
        settled=event.settled,
    )
    nodes = "node" if event.size == 1 else "nodes"
    context.log(event.job, f"{event.rate:.4g} samples/s on {event.size} {nodes}")
    if not relative:
        context.log(event.job, "it is another than its family by what was measured: its curve is learnt by itself")
    history = histories.find_or_add(event.job)
    if event.span_s > 0:
        history.settle_s = event.span_s
    _check_given(context, job)
    if job.probe is not None and job.probe.size == event.size:
        end_probe(context, job)
    if job.probe is None and job.size == event.size:
        _try_next(context, job)
    before = history.posterior
    _refresh_curve(context, job)
    context.problem_changed |= job.probe is not None or not _alike(before, history.posterior)


def _alike(before: Posterior | None, after: Posterior | None) -> bool:
    """Whether a new allocation is not worth its while: no rate has changed by much against that at the smallest size,
    which is the job's unit."""
    if before is None or after is None or before.sizes != after.sizes or before.rate[0] <= 0:
        return before is after
    scale = after.rate[0] / before.rate[0]
    pairs = zip(before.rate, after.rate, strict=True)
    return all(abs(now - scale * then) <= _WORTH_A_LOOK * scale * then for then, now in pairs)


def _usable(context: EventContext, event: ev.JobMeasured) -> bool:
    if 0 < event.rate < 1e12 and event.size > 0:
        if not event.settled:
            context.log(event.job, "it never left its warm-up: its throughput is taken as it is, and trusted little")
        return True
    context.log(event.job, f"it reports {event.rate:g} samples/s on {event.size} nodes: left aside")
    return False


def _try_next(context: EventContext, job: JobState) -> None:
    """Begin a probe where the profiler wants one and no more jobs try sizes than may."""
    state = context.state
    trying = [other for other_id in state.started if (other := state.jobs[other_id]).probe is not None]
    if len(trying) >= state.settings.max_probes:
        return
    history = state.histories.find_or_add(job.job.id)
    circumstances = _circumstances(state, job, trying)
    evidence = state.histories.evidence(job.job.id, job.job.sizes, job.job.curve)
    size = load(state.settings.profiler).next_size(evidence, circumstances)
    if size is None or size == job.size or size not in job.job.sizes:
        return
    job.probe = Probe(size, context.now_s)
    history.probes += 1
    context.set_timer(Timer("probe", job.job.id), state.settings.probe_limit_s)
    context.log(job.job.id, f"tries {size} nodes for a moment, to learn how it scales")


def _circumstances(state: State, job: JobState, trying: list[JobState]) -> Circumstances:
    histories, its = state.histories, job.job
    history = histories.find_or_add(its.id)
    started = [other for other_id in state.started if (other := state.jobs[other_id]).phase in LIVE]
    nodes = len(state.free) + sum(len(other.nodes) for other in started)
    grow_s, shrink_s = costs_s(state, job)
    keys = set(history.keys)
    relatives = sum(
        other != its.id and other in histories.jobs and not keys.isdisjoint(histories.jobs[other].keys)
        for other in (*state.started, *state.queue)
    )
    return Circumstances(
        size=job.size,
        fair_size=max(1, nodes // max(1, len(started))),
        grow_cost_s=grow_s,
        shrink_cost_s=shrink_s,
        settle_s=history.settle_s or 0.0,
        expected_run_s=_expected_run_s(state, job),
        relatives=relatives,
        relative_probes=any(not keys.isdisjoint(histories.find_or_add(other.job.id).keys) for other in trying),
        probes=history.probes,
        spent_node_s=history.spent_node_s,
    )


def _expected_run_s(state: State, job: JobState) -> float:
    """From its goal and its speed; else as long as jobs ran lately."""
    own = state.histories.find_or_add(job.job.id).observations
    goal = job.job.goal_samples
    posterior = state.histories.find_or_add(job.job.id).posterior
    if goal is not None and own and posterior is not None:
        newest = own[-1]
        return goal / (newest.size * exp(newest.log_efficiency))
    return state.histories.typical_run_s or state.settings.expected_run_s


def end_probe(context: EventContext, job: JobState) -> None:
    """It has been measured, or cannot be any more: the job takes part in the allocation as always."""
    probe = job.probe
    if probe is None:
        return
    job.probe = None
    context.cancel_timer(Timer("probe", job.job.id))
    context.state.histories.find_or_add(job.job.id).spent_node_s += probe.size * (context.now_s - probe.since_s)
    context.problem_changed = True


def give_up(context: EventContext, job_id: str) -> None:
    """The size has not been measured in time."""
    job = context.state.jobs.get(job_id)
    if job is not None and job.probe is not None:
        context.log(
            job_id, f"no throughput at {job.probe.size} nodes within {context.state.settings.probe_limit_s:g} s"
        )
        end_probe(context, job)


def note_formed(context: EventContext, job: JobState, event: ev.GenerationFormed, before: tuple[Member, ...]) -> None:
    """A generation formed, whose members that have the state were `before`: what it cost, and what the job is."""
    if job.trained_since_s is None:
        job.trained_since_s = context.now_s
    if not measures(context.state) or job.restarts:
        return
    histories = context.state.histories
    if event.took_s > 0:
        grew = not {member.incarnation for member in job.state_holders} <= {member.incarnation for member in before}
        histories.note_cost(job.job.id, "grow" if grew else "shrink", event.took_s)
    key = f"model {event.fingerprint}, {job.job.ranks_per_node} a node"
    if event.fingerprint and histories.join(job.job.id, key):
        relatives = len(histories.families.get(key, ()))
        if relatives:
            jobs = "1 job" if relatives == 1 else f"{relatives} jobs"
            context.log(job.job.id, f"its like has been seen: its curve begins with those of {jobs} of the same model")
            context.problem_changed = True


def note_start(context: EventContext, job: JobState, took_s: float) -> None:
    """A worker of the job took so long to become ready."""
    if measures(context.state) and not job.restarts:
        context.state.histories.note_cost(job.job.id, "start", took_s)


def note_end(context: EventContext, job: JobState) -> None:
    since_s = job.trained_since_s
    run_s = context.now_s - since_s if since_s is not None and job.phase == "finished" else None
    context.state.histories.end(job.job.id, run_s)


def _check_given(context: EventContext, job: JobState) -> None:
    """Tell the user, once, that the curve that came with the job is not what is measured."""
    given, history = job.job.curve, context.state.histories.find_or_add(job.job.id)
    if given is None or history.contradicted:
        return
    rates = {o.size: o.size * exp(o.log_efficiency) for o in history.observations}
    small, large = min(rates), max(rates)
    if small == large or not given.rate_at(small) or not given.rate_at(large):
        return
    said, seen = given.rate_at(large) / given.rate_at(small), rates[large] / rates[small]
    if max(said / seen, seen / said) > _CONTRADICTS:
        history.contradicted = True
        context.log(
            job.job.id,
            f"its curve says {said:.3g} times the throughput on {large} nodes that {small} have; "
            f"measured: {seen:.3g} times. What is measured counts.",
        )


def curve_of(state: State, job: JobState) -> ScalingCurve:
    """The curve that the allocator uses for the job."""
    history = state.histories.jobs.get(job.job.id)
    learnt = (
        history.posterior.curve if history is not None and history.posterior is not None and learns(state) else None
    )
    return learnt or job.job.curve or amdahl(job.job.sizes.largest)
