"""What is learnt of jobs' scaling and resizes, and which of them try a size for a moment.

A job that tries a size (`JobState.probe`) has exactly that size in the allocation problem until its throughput there
has been measured; the rest of the nodes are allocated as always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp

from offcut.advisor import Circumstances, load
from offcut.advisor.posterior import Posterior
from offcut.control import admit
from offcut.control.state import LIVE, JobState, Probe, State
from offcut.control.turn import Turn
from offcut.errors import InputError
from offcut.model import ScalingCurve, amdahl
from offcut.model import events as ev
from offcut.model.events import Member

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
    known, its = state.knowledge, job.job
    grow_s, shrink_s = job.resize_costs_s(state.settings)
    if job.restarts:
        return grow_s, shrink_s  # its script says nothing from which they could be measured
    if its.grow_cost_s is None:
        grow_s = known.cost_s(its.id, "grow", grow_s)
        if not job.nodes:
            grow_s += known.cost_s(its.id, "start", 0.0)
    if its.shrink_cost_s is None:
        shrink_s = known.cost_s(its.id, "shrink", shrink_s)
    return grow_s, shrink_s


def refresh(turn: Turn) -> None:
    """Before a problem is asked: every job's curve rests on all that is known, and every probe can be had."""
    state = turn.state
    admitted = admit.admitted(state)
    # What a finishing job still holds is not in the problem.
    left = len(state.free) + sum(len(job.nodes) for job in admitted)
    for job in admitted:
        _refresh_curve(turn, job)
        probe = job.probe
        if probe is None:
            continue
        have = len(job.nodes)
        if probe.granted and have < probe.size:
            probe.size = job.job.sizes.fit(have)
        left -= probe.size
        if not probe.size or left < 0:
            end_probe(turn, job)


def _refresh_curve(turn: Turn, job: JobState) -> None:
    state, job_id = turn.state, job.job.id
    known = state.knowledge.of(job_id)
    basis = state.knowledge.basis(job_id, known)
    if basis == known.basis:
        return
    known.basis = basis
    try:
        known.posterior = load(state.settings.profiler).posterior(
            state.knowledge.known(job_id, job.job.sizes, job.job.curve)
        )
    except InputError as error:
        known.posterior = None
        turn.tell(job_id, f"its curve could not be learnt: {error}")


def note_granted(jobs: Iterable[JobState], counts: Mapping[str, int]) -> None:
    """An answer is being carried out: the jobs that try a size have it now."""
    for job in jobs:
        if job.probe is not None and counts.get(job.job.id) == job.probe.size:
            job.probe.granted = True


def on_job_measured(turn: Turn, event: ev.JobMeasured) -> None:
    state = turn.state
    job = state.jobs.get(event.job)
    if job is None or job.phase not in LIVE or not measures(state) or not _usable(turn, event):
        return
    knowledge = state.knowledge
    if event.slow_node:
        turn.tell(
            event.job, f"{event.rate:.4g} samples/s on {event.size} nodes, held up by {event.slow_node}: left aside"
        )
        return
    if event.changed:
        factor = knowledge.shift(event.job, size=event.size, rate=event.rate)
        turn.tell(event.job, f"its speed has changed by {factor - 1:+.0%} at {event.size} nodes: measured anew")
    relative = knowledge.observe(
        event.job,
        generation=event.generation,
        size=event.size,
        rate=event.rate,
        spread=event.spread,
        stretches=event.stretches,
        settled=event.settled,
    )
    nodes = "node" if event.size == 1 else "nodes"
    turn.tell(event.job, f"{event.rate:.4g} samples/s on {event.size} {nodes}")
    if not relative:
        turn.tell(event.job, "it is another than its family by what was measured: its curve is learnt by itself")
    known = knowledge.of(event.job)
    if event.span_s > 0:
        known.settle_s = event.span_s
    _check_given(turn, job)
    if job.probe is not None and job.probe.size == event.size:
        end_probe(turn, job)
    if job.probe is None and job.size == event.size:
        _try_next(turn, job)
    before = known.posterior
    _refresh_curve(turn, job)
    turn.dirty |= job.probe is not None or not _alike(before, known.posterior)


def _alike(before: Posterior | None, after: Posterior | None) -> bool:
    """Whether a new allocation is not worth its while: no rate has changed by much against that at the smallest size,
    which is the job's unit."""
    if before is None or after is None or before.sizes != after.sizes or before.rate[0] <= 0:
        return before is after
    scale = after.rate[0] / before.rate[0]
    pairs = zip(before.rate, after.rate, strict=True)
    return all(abs(now - scale * then) <= _WORTH_A_LOOK * scale * then for then, now in pairs)


def _usable(turn: Turn, event: ev.JobMeasured) -> bool:
    if 0 < event.rate < 1e12 and event.size > 0:
        if not event.settled:
            turn.tell(event.job, "it never left its warm-up: its throughput is taken as it is, and trusted little")
        return True
    turn.tell(event.job, f"it reports {event.rate:g} samples/s on {event.size} nodes: left aside")
    return False


def _try_next(turn: Turn, job: JobState) -> None:
    """Begin a probe where the profiler wants one and no more jobs try sizes than may."""
    state = turn.state
    trying = [other for other_id in state.started if (other := state.jobs[other_id]).probe is not None]
    if len(trying) >= state.settings.max_probes:
        return
    known = state.knowledge.of(job.job.id)
    circumstances = _circumstances(state, job, trying)
    scaling = state.knowledge.known(job.job.id, job.job.sizes, job.job.curve)
    size = load(state.settings.profiler).next_size(scaling, circumstances)
    if size is None or size == job.size or size not in job.job.sizes:
        return
    job.probe = Probe(size, turn.now_s)
    known.probes += 1
    turn.timer(f"probe:{job.job.id}", state.settings.probe_limit_s)
    turn.tell(job.job.id, f"tries {size} nodes for a moment, to learn how it scales")


def _circumstances(state: State, job: JobState, trying: list[JobState]) -> Circumstances:
    knowledge, its = state.knowledge, job.job
    known = knowledge.of(its.id)
    started = [other for other_id in state.started if (other := state.jobs[other_id]).phase in LIVE]
    nodes = len(state.free) + sum(len(other.nodes) for other in started)
    grow_s, shrink_s = costs_s(state, job)
    keys = set(known.keys)
    relatives = sum(
        other != its.id and other in knowledge.jobs and not keys.isdisjoint(knowledge.jobs[other].keys)
        for other in (*state.started, *state.queue)
    )
    return Circumstances(
        size=job.size,
        fair_size=max(1, nodes // max(1, len(started))),
        grow_cost_s=grow_s,
        shrink_cost_s=shrink_s,
        settle_s=known.settle_s or 0.0,
        expected_run_s=_expected_run_s(state, job),
        relatives=relatives,
        relative_probes=any(not keys.isdisjoint(knowledge.of(other.job.id).keys) for other in trying),
        probes=known.probes,
        spent_node_s=known.spent_node_s,
    )


def _expected_run_s(state: State, job: JobState) -> float:
    """From its goal and its speed; else as long as jobs ran lately."""
    own = state.knowledge.of(job.job.id).own
    goal = job.job.goal_samples
    posterior = state.knowledge.of(job.job.id).posterior
    if goal is not None and own and posterior is not None:
        newest = own[-1]
        return goal / (newest.size * exp(newest.log_efficiency))
    return state.knowledge.typical_run_s or state.settings.expected_run_s


def end_probe(turn: Turn, job: JobState) -> None:
    """It has been measured, or cannot be any more: the job takes part in the allocation as always."""
    probe = job.probe
    if probe is None:
        return
    job.probe = None
    turn.state.timers.pop(f"probe:{job.job.id}", None)
    turn.state.knowledge.of(job.job.id).spent_node_s += probe.size * (turn.now_s - probe.since_s)
    turn.dirty = True


def give_up(turn: Turn, job_id: str) -> None:
    """The size has not been measured in time."""
    job = turn.state.jobs.get(job_id)
    if job is not None and job.probe is not None:
        turn.tell(job_id, f"no throughput at {job.probe.size} nodes within {turn.state.settings.probe_limit_s:g} s")
        end_probe(turn, job)


def note_formed(turn: Turn, job: JobState, event: ev.GenerationFormed, before: tuple[Member, ...]) -> None:
    """A generation formed, whose members that have the state were `before`: what it cost, and what the job is."""
    if job.trained_since_s is None:
        job.trained_since_s = turn.now_s
    if not measures(turn.state) or job.restarts:
        return
    knowledge = turn.state.knowledge
    if event.took_s > 0:
        grew = not {member.incarnation for member in job.formed} <= {member.incarnation for member in before}
        knowledge.note_cost(job.job.id, "grow" if grew else "shrink", event.took_s)
    key = f"model {event.fingerprint}, {job.job.ranks_per_node} a node"
    if event.fingerprint and knowledge.join(job.job.id, key):
        relatives = len(knowledge.families.get(key, ()))
        if relatives:
            jobs = "1 job" if relatives == 1 else f"{relatives} jobs"
            turn.tell(job.job.id, f"its like has been seen: its curve begins with those of {jobs} of the same model")
            turn.dirty = True


def note_start(turn: Turn, job: JobState, took_s: float) -> None:
    """A worker of the job took so long to become ready."""
    if measures(turn.state) and not job.restarts:
        turn.state.knowledge.note_cost(job.job.id, "start", took_s)


def note_end(turn: Turn, job: JobState) -> None:
    since_s = job.trained_since_s
    run_s = turn.now_s - since_s if since_s is not None and job.phase == "finished" else None
    turn.state.knowledge.end(job.job.id, run_s)


def _check_given(turn: Turn, job: JobState) -> None:
    """Tell the user, once, that the curve that came with the job is not what is measured."""
    given, known = job.job.curve, turn.state.knowledge.of(job.job.id)
    if given is None or known.contradicted:
        return
    rates = {o.size: o.size * exp(o.log_efficiency) for o in known.own}
    small, large = min(rates), max(rates)
    if small == large or not given.at(small) or not given.at(large):
        return
    said, seen = given.at(large) / given.at(small), rates[large] / rates[small]
    if max(said / seen, seen / said) > _CONTRADICTS:
        known.contradicted = True
        turn.tell(
            job.job.id,
            f"its curve says {said:.3g} times the throughput on {large} nodes that {small} have; "
            f"measured: {seen:.3g} times. What is measured counts.",
        )


def curve_of(state: State, job: JobState) -> ScalingCurve:
    """The curve that the allocator uses for the job."""
    known = state.knowledge.jobs.get(job.job.id)
    learnt = known.posterior.curve if known is not None and known.posterior is not None and learns(state) else None
    return learnt or job.job.curve or amdahl(job.job.sizes.largest)
