"""Probes: a job has one size for a moment, so that its throughput there is measured.

While `JobState.probe` is set, the job has exactly that size in the allocation problem; the other nodes are allocated as
usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp

from offcut.advisor import Circumstances, load
from offcut.control.event_context import EventContext
from offcut.control.job_curves import costs_s
from offcut.control.state import LIVE, JobState, Probe, State
from offcut.model.events import Timer


def note_granted(jobs: Iterable[JobState], counts: Mapping[str, int]) -> None:
    """Note which jobs have the size that they try: this answer is being carried out."""
    for job in jobs:
        if job.probe is not None and counts.get(job.job.id) == job.probe.size:
            job.probe.granted = True


def try_next(context: EventContext, job: JobState) -> None:
    """Begin a probe if the curve model asks for one and not too many jobs try sizes already."""
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
    context.log(job.job.id, f"tries {size} nodes for a moment, to measure its scaling")


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
    """Return how long the job is expected to run: from its goal and its rate, else as long as jobs ran lately."""
    own = state.histories.find_or_add(job.job.id).observations
    goal = job.job.goal_samples
    posterior = state.histories.find_or_add(job.job.id).posterior
    if goal is not None and own and posterior is not None:
        newest = own[-1]
        return goal / (newest.size * exp(newest.log_efficiency))
    return state.histories.typical_run_s or state.settings.expected_run_s


def end_probe(context: EventContext, job: JobState) -> None:
    """End the probe: the size has been measured, or cannot be. The job takes part in the allocation as always."""
    probe = job.probe
    if probe is None:
        return
    job.probe = None
    context.cancel_timer(Timer("probe", job.job.id))
    context.state.histories.find_or_add(job.job.id).spent_node_s += probe.size * (context.now_s - probe.since_s)
    context.problem_changed = True


def give_up(context: EventContext, job_id: str) -> None:
    """End the probe: the size has not been measured in time."""
    job = context.state.jobs.get(job_id)
    if job is not None and job.probe is not None:
        context.log(
            job_id, f"no throughput at {job.probe.size} nodes within {context.state.settings.probe_limit_s:g} s"
        )
        end_probe(context, job)
