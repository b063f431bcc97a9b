"""What is learned of the scaling of jobs, and of what their resizes cost, from measurements."""

from __future__ import annotations

from math import exp

from offcut.advisor import load
from offcut.advisor.posterior import Posterior
from offcut.control import admission, job_curves, probes
from offcut.control.event_context import EventContext
from offcut.control.state import LIVE, JobState
from offcut.errors import InputError
from offcut.model import Sizes
from offcut.model import events as ev
from offcut.model.events import Member

#: A given curve that is off by this factor between two measured sizes is wrong.
_CONTRADICTS = 1.25
#: Curves that differ by less need no new allocation; the next one will use them.
_WORTH_A_LOOK = 0.02


def refresh(context: EventContext) -> None:
    """Bring every job's curve up to date, and end probes that cannot be had. Called before a problem is posed."""
    state = context.state
    admitted = admission.admitted(state)
    # Nodes of finishing jobs are not in the problem.
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
            probes.end_probe(context, job)


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
        context.log(job_id, f"its curve could not be learned: {error}")


def on_job_measured(context: EventContext, event: ev.JobMeasured) -> None:
    state = context.state
    job = state.jobs.get(event.job)
    if job is None or job.phase not in LIVE or not job_curves.measures(state) or not _usable(context, event):
        return
    histories = state.histories
    if event.slow_node:
        context.log(
            event.job, f"{event.rate:.4g} samples/s on {event.size} nodes, held up by {event.slow_node}: ignored"
        )
        return
    if event.changed:
        factor = histories.shift(event.job, size=event.size, rate=event.rate)
        context.log(event.job, f"its speed has changed by {factor - 1:+.0%} at {event.size} nodes: measured again")
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
        context.log(event.job, "its measurements differ from its family's: its curve is learned without the family")
    history = histories.find_or_add(event.job)
    if event.span_s > 0:
        history.settle_s = event.span_s
    _check_given(context, job)
    if job.probe is not None and job.probe.size == event.size:
        probes.end_probe(context, job)
    if job.probe is None and job.size == event.size:
        probes.try_next(context, job)
    before = history.posterior
    _refresh_curve(context, job)
    context.problem_changed |= job.probe is not None or not _alike(before, history.posterior, job.job.sizes)


def _alike(before: Posterior | None, after: Posterior | None, sizes: Sizes) -> bool:
    """Return whether the curve is so little changed that it needs no new allocation.

    No rate has changed by much, each in the unit of its curve.
    """
    if before is None or after is None or before.sizes != after.sizes:
        return before is after
    unit = job_curves.unit_rate(before.curve, sizes)
    if unit <= 0:
        return before is after
    scale = job_curves.unit_rate(after.curve, sizes) / unit
    pairs = zip(before.rate, after.rate, strict=True)
    return all(abs(now - scale * then) <= _WORTH_A_LOOK * scale * then for then, now in pairs)


def _usable(context: EventContext, event: ev.JobMeasured) -> bool:
    if 0 < event.rate < 1e12 and event.size > 0:
        if not event.settled:
            context.log(event.job, "it never left its warm-up: its throughput is taken as it is, and trusted little")
        return True
    context.log(event.job, f"it reports {event.rate:g} samples/s on {event.size} nodes: ignored")
    return False


def note_formed(context: EventContext, job: JobState, event: ev.GenerationFormed, before: tuple[Member, ...]) -> None:
    """Note what the resize cost and what model the job trains. `before`: the members that had the state until now."""
    if job.trained_since_s is None:
        job.trained_since_s = context.now_s
    if not job_curves.measures(context.state) or job.restarts:
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
            context.log(job.job.id, f"it begins with the curves of {jobs} of the same model")
            context.problem_changed = True


def note_start(context: EventContext, job: JobState, took_s: float) -> None:
    """Note how long a worker of the job took to become ready."""
    if job_curves.measures(context.state) and not job.restarts:
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
            f"measured: {seen:.3g} times. The measurements count.",
        )
